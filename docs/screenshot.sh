#!/bin/sh
# Makes docs/report.png: the upper part of the HTML report on the bundled vLLM logs, in light colours, 1280 px wide.
# It needs .venv (./dev demo) and Debian's package chromium. Run it again when the report's look has changed.
set -eu
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

.venv/bin/outlay explain tests/data/vllm-requests/*requests.jsonl \
    --budget examples/vllm-requests/outlay.yaml --html "$work/report.html" >/dev/null 2>&1
chromium --headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking \
    --disable-component-update --disable-sync --user-data-dir="$work/profile" --hide-scrollbars \
    --force-device-scale-factor=1 --blink-settings=preferredColorScheme=1 --window-size=1280,1060 \
    --screenshot=docs/report.png "file://$work/report.html" >/dev/null 2>&1
