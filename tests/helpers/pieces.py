"""Token engines that can be reckoned by hand: a vocabulary of pieces, scripted replies, log-probs by id."""

from collections.abc import Sequence
from typing import Any

from tutelage.engines import Message, Sample, Sampling
from tutelage.engines.tokens import TokenEngine

END = "<end>"
LETTERS = [chr(code) for code in range(32, 127)] + ["\n", "é"]


class Pieces:
    """Longest known piece first; a piece may hold white space and the beginning of a tag."""

    def __init__(self, *pieces: str):
        self.pieces = [END, *LETTERS, *pieces]
        self.vocabulary = {piece: place for place, piece in enumerate(self.pieces)}
        self.decoded = 0  # tokens decoded so far
        self.all_special_ids = [0]

    def get_vocab(self) -> dict[str, int]:
        return self.vocabulary

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        ids, known = [], sorted(self.pieces[1:], key=len, reverse=True)
        while text:
            piece = next((piece for piece in known if text.startswith(piece)), text[0])
            if piece in self.vocabulary:  # what is unknown is lost, as with some tokenizers
                ids.append(self.vocabulary[piece])
            text = text[len(piece) :]
        return ids

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        self.decoded += len(ids)
        return "".join(self.pieces[token] for token in ids if token)

    def apply_chat_template(self, messages: list[Message], **options: Any) -> list[int]:
        text = "".join(f"[{message['role']}]{message['content']}" for message in messages)
        return self.encode(text + ("" if options["continue_final_message"] else "[assistant]"))


class Reader(TokenEngine):
    """Says what it is told to say; finds token i likely by -(i % 7) / 10 - 0.1, times the temperature."""

    def __init__(self, *replies: Any, tokenizer: Pieces, context: int = 4096, name: str = "reader"):
        self.replies, self.tokenizer, self.context, self.name, self.revision = replies, tokenizer, context, name, "1"
        self.asked: list[tuple[tuple[int, ...], Sampling, int, int]] = []
        self.scored: list[tuple[tuple[int, ...], tuple[int, ...], float]] = []

    async def _write(self, prompt: tuple[int, ...], sampling: Sampling, n: int, seed: int) -> list[Sample]:
        self.asked.append((prompt, sampling, n, seed))
        samples = []
        for index in range(n):
            reply = self.replies[index % len(self.replies)]
            ids = tuple(self.tokenizer.encode(reply) if isinstance(reply, str) else reply)
            whole = len(ids) < sampling.max_tokens
            ids = (*ids, 0) if whole else ids[: sampling.max_tokens]
            logprobs = tuple(-0.01 * (place + 1) for place in range(len(ids)))
            text = self.decode(ids)
            samples.append(Sample(text, "stop" if whole else "length", len(ids), ids, logprobs, prompt, 0.1))
        return samples

    async def _weigh(self, prompt: tuple[int, ...], completion: tuple[int, ...], temperature: float) -> list[float]:
        self.scored.append((prompt, completion, temperature))
        return [temperature * (-(token % 7) / 10 - 0.1) for token in completion]
