"""Engines that see tokens: conversations become ids, and what cannot fit is refused before it is asked."""

import functools
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from jinja2 import TemplateError

from tutelage.engines.base import Engine, Message, Sample, Sampling
from tutelage.engines.packed import Packed
from tutelage.errors import EngineError, PromptTooLong

MARKS = ("one", "two")  # whatever a tokenizer makes of them, they end in different tokens


@functools.cache  # as large as the vocabularies
def shared(token: int) -> int:
    """The same object for a token wherever it stands: thousands of dialogues then hold references, not numbers."""
    return token


class TokenEngine(Engine):
    """Ids in, ids and log-probs out; the backends only write and weigh."""

    tokenizer: Any
    context: int

    def render(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """The ids of a conversation, ready for the assistant to go on; a last assistant message is continued."""
        prefill = messages[-1]["role"] == "assistant"
        options = dict(add_generation_prompt=not prefill, continue_final_message=prefill, return_dict=False)
        try:
            return tuple(map(shared, self.tokenizer.apply_chat_template(list(messages), **options)))
        except TemplateError as error:
            if messages[0]["role"] != "system":
                raise EngineError(f"the chat template of {self.name} refuses these messages: {error}") from error
            # Some templates have no system role: its text then opens the first message.
            first, second, *rest = messages
            merged: Message = {"role": second["role"], "content": f"{first['content']}\n\n{second['content']}"}
            return self.render([merged, *rest])

    def follow(self, sample: Sample, text: str) -> tuple[int, ...]:
        """The prompt of the assistant's next turn, after `text` from the user.

        What was sampled stays as it was sampled: it is neither tokenised again nor rewritten, also where the template
        would drop earlier thoughts. A sample cut off by its limit gets the end of turn that it lacks.
        """
        # Two conversations that differ in the last letter of one message: what they end with alike follows it.
        one, two = (self.render([_user("?"), {"role": "assistant", "content": said}, _user(text)]) for said in MARKS)
        alike = next((i for i, (a, b) in enumerate(zip(one[::-1], two[::-1], strict=False)) if a != b), None)
        if not alike:  # the assistant's words are left out, or nothing asks it to go on
            raise EngineError(f"the chat template of {self.name} has no second turn: use max_turns=1 or another model")
        glue = one[-alike:]
        ended = sample.finish == "stop" and sample.ids[-1:] == glue[:1]
        return tuple(map(shared, (*sample.prompt_ids, *sample.ids, *(glue[1:] if ended else glue))))

    def spell(self, text: str) -> tuple[int, ...]:
        """A whole turn of the assistant in other people's words: the text's ids and the token that ends a turn."""
        end = self.tokenizer.eos_token_id
        with suppress(EngineError):  # one turn is enough for some templates
            after = self.follow(Sample("", "length", 0), "?")[0]
            added = self.tokenizer.added_tokens_decoder.get(after)
            end = after if added and added.special else end  # some models end a turn by another token than a text
        return (*self.tokenizer(text, add_special_tokens=False).input_ids, end)

    @functools.cached_property
    def special(self) -> frozenset[int]:
        """Tokens that decoding leaves out: nobody sees them in a text, and a model that reads ids does."""
        added = getattr(self.tokenizer, "added_tokens_decoder", {})
        return frozenset(self.tokenizer.all_special_ids) | {token for token, one in added.items() if one.special}

    def decode(self, ids: Sequence[int]) -> str:
        return self.tokenizer.decode(ids, skip_special_tokens=True)

    def count(self, text: str, sample: Sample) -> int:
        return len(self.tokenizer.encode(text, add_special_tokens=False))

    async def generate(
        self, messages: Sequence[Message], sampling: Sampling, n: int = 1, seed: int = 0
    ) -> list[Sample]:
        return await self.generate_ids(self.render(messages), sampling, n, seed)

    async def proceed(
        self, messages: Sequence[Message], last: Sample | None, sampling: Sampling, n: int = 1, seed: int = 0
    ) -> list[Sample]:
        if last is None:
            return await self.generate(messages, sampling, n, seed)
        prompt = self.follow(last, messages[-1]["content"])
        samples = await self.generate_ids(prompt, sampling, n, seed)
        added = Packed("i", prompt[len(last.prompt_ids) + len(last.ids) :], last.prompt_ids, last.ids)
        return [replace(sample, prompt_ids=added) for sample in samples]

    async def generate_ids(self, prompt: Sequence[int], sampling: Sampling, n: int = 1, seed: int = 0) -> list[Sample]:
        if not prompt or n < 1:
            raise EngineError(f"{self.name} was asked for {n} samples of a prompt of {len(prompt)} tokens")
        room = self.context - len(prompt)
        if room < 1:
            raise PromptTooLong(
                f"a prompt of {len(prompt)} tokens leaves no room in the {self.context}-token context of {self.name}"
            )
        if sampling.max_tokens > room:
            sampling = sampling.but(max_tokens=room)
        samples = await self._write(tuple(prompt), sampling, n, seed)
        asked = Packed("i", prompt)
        return [replace(s, logprobs=Packed("d", s.logprobs) or (), prompt_ids=asked) for s in samples]

    async def score(self, prompt: Sequence[int], completion: Sequence[int], temperature: float = 1.0) -> list[float]:
        if len(prompt) + len(completion) > self.context:
            length = len(prompt) + len(completion)
            raise PromptTooLong(f"a text of {length} tokens is over the {self.context}-token context of {self.name}")
        if not prompt:
            raise EngineError("a text is scored after a prompt of at least one token")
        if not completion:
            return []
        return await self._weigh(tuple(prompt), tuple(completion), temperature)

    @abstractmethod
    async def _write(self, prompt: tuple[int, ...], sampling: Sampling, n: int, seed: int) -> list[Sample]:
        """`n` samples of a prompt that leaves them room."""

    @abstractmethod
    async def _weigh(self, prompt: tuple[int, ...], completion: tuple[int, ...], temperature: float) -> list[float]:
        """The completion's log-probs; the text fits the context."""


def _user(text: str) -> Message:
    return {"role": "user", "content": text}
