"""Rows whose parts are not plain columns: chats, solutions with a marked end, answers in columns of their own."""

import random
import re
from collections.abc import Callable, Mapping
from typing import Any

from tutelage.data.values import FINAL_LINE, Unusable, text
from tutelage.tags import Tags

Row = Mapping[str, Any]


def said(column: str, *roles: str) -> Callable[[Row], str]:
    """The first message of a role, in either spelling of chat rows; plain text is taken as it is."""

    def read(row: Row) -> str:
        messages = row[column]
        if isinstance(messages, str):
            return messages
        for message in messages:
            if message.get("from", message.get("role")) in roles:
                return message.get("value", message.get("content"))
        raise Unusable(f"no message from {roles[0]} in {column}")

    return read


BESPOKE = Tags("bespoke")
bespoke_user = said("conversations", "user", "human")
bespoke_reply = said("conversations", "assistant", "gpt")


def bespoke_solution(row: Row) -> str:
    solution = BESPOKE.inside(BESPOKE.solution, bespoke_reply(row))
    if not solution:
        raise Unusable(f"no {BESPOKE.opening(BESPOKE.solution)} in the assistant's message")
    return solution


def bespoke_thought(row: Row) -> str:
    return BESPOKE.inside(BESPOKE.thought, bespoke_reply(row)) or ""


def bespoke_marked(row: Row) -> bool:
    return BESPOKE.opening(BESPOKE.solution) in str(row.get("conversations"))


def gsm8k_parts(row: Row) -> tuple[str, str]:
    worked = text(row["answer"])
    final = FINAL_LINE.search(worked)
    if not final:
        raise Unusable("the answer does not end with a line #### and the final answer")
    return re.sub(r"<<[^<>]*>>", "", worked[: final.start()]).strip(), final[1].replace(",", "")


def gsm8k_solution(row: Row) -> str:
    # "####" means something in this dataset only; a student is taught, and checked by, a sentence
    steps, final = gsm8k_parts(row)
    return f"{steps}\nThe answer is {final}.".lstrip()


GPQA_RIGHT = "Correct Answer"
GPQA = (GPQA_RIGHT, *(f"Incorrect Answer {number}" for number in (1, 2, 3)))


def gpqa_order(row: Row) -> list[str]:
    """The columns of the answers, in an order of each question's own: the right one must not always be A."""
    return random.Random(text(row["Question"])).sample(GPQA, len(GPQA))


def gpqa_choices(row: Row) -> list[str]:
    choices = [text(row[column]) for column in gpqa_order(row)]
    if not all(choices):
        raise Unusable("one of the four answers is empty")
    return choices


def tagged(name: str) -> Callable[[Row], str]:
    """A tagged part of the assistant's message, in either spelling of the tags."""

    def read(row: Row) -> str:
        reply = said("messages", "assistant", "gpt")(row)
        tags = next((tags for tags in (Tags(), BESPOKE) if tags.opening(tags.solution) in reply), None)
        found = tags and tags.inside(getattr(tags, name), reply)
        if not found:
            raise Unusable(f"no {name} between tags in the assistant's message")
        return found

    return read
