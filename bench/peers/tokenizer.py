"""A tokenizer of one token a word, so that load tools which insist on one run without a model hub."""

import json
from pathlib import Path

_SPECIAL = ("<unk>", "<s>", "</s>", "<pad>")
_WORDS = 2000


def write_tokenizer(folder: Path) -> None:
    """The files of such a tokenizer, as Hugging Face's libraries load them."""
    words = (*_SPECIAL, "tok", *(f"w{number}" for number in range(_WORDS)))
    special = [
        {"id": place, "content": word, "special": True}
        | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        for place, word in enumerate(_SPECIAL)
    ]
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": special,
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        # Without a decoder the words of a decoded text stand apart, so that they are as many tokens again.
        "decoder": None,
        "model": {
            "type": "WordLevel",
            "vocab": {word: place for place, word in enumerate(words)},
            "unk_token": "<unk>",
        },
    }
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": "<unk>",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "pad_token": "<pad>",
        "clean_up_tokenization_spaces": False,
        "model_max_length": 32768,
        "chat_template": "{% for message in messages %}{{ message['content'] }} {% endfor %}",
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
