"""A model small enough to train many steps in a test: two narrow layers and a few hundred words."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from tutelage.lessons import prompts
from tutelage.models import quiet
from tutelage.problem import Problem


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory, smollm: Any) -> Path:
    """A random Llama, saved like any model, with a tokenizer that knows the words of our prompts."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    public = Problem("0 1 2 3 4 5 6 7 8 9 + - * / = State the final answer to this arithmetic problem", "", "").public
    asked = [*prompts.solve(public, "hint"), *prompts.probe(public), *prompts.teach(public, "idea")]
    words = Tokenizer(models.WordLevel(unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    special = ["<unk>", "<end>", "<pad>", "<|im_start|>", "<|im_end|>"]
    words.train_from_iterator(
        [message["content"] for message in asked] + ["system user assistant"],
        trainers.WordLevelTrainer(special_tokens=special),
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, unk_token="<unk>", eos_token="<|im_end|>", pad_token="<pad>"
    )
    tokenizer.chat_template = smollm[1].chat_template
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=2048, tie_word_embeddings=True, initializer_range=0.5,
        bos_token_id=None, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    with quiet():
        LlamaForCausalLM(config).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return folder
