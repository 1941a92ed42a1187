"""The final answer in a reply: in solution tags, else boxed, else after ####, else after "answer is", else all."""

import re

THINK = re.compile(r"(<think(?:ing)?>)|(</think(?:ing)?>)", re.I)
TAG = re.compile(r"(<solution>|<\|begin_of_solution\|>)|(</solution>|<\|end_of_solution\|>)", re.I)
# A box with braces, a box without them (\boxed 5), then whatever else moves the brace depth.
BRACE = re.compile(r"(\\+(?:boxed|fbox)\s*\{)|\\+(?:boxed|fbox)\s*([^\s{}$\\]+)|\\.|([{}])", re.S)
# "this answer is helpful", "the answer is correct" speak about an answer without giving it.
CUE = re.compile(
    r"(?<!this )(?<!that )(?<!your )\banswer\b"
    r"(?:(?:\s+(?:to|for)\b[^.:\n]{0,80}?)?[*_]*\s*(?:\bis\b:?|[:=])"
    r"|(?<!to answer)(?:[ \t]+[^\s.,:;!?=]++){0,6}?[ \t]+(?:is|would[ \t]+be)\b:?)"
    r"[*_\s]*+(?!(?:not|correct|wrong)\b)",
    re.I,
)
STATED = re.compile(r"\$\$(.+?)\$\$|\\\[(.+?)\\\]|([^\n]+)", re.S)
# A reason ends the answer as a full stop does; "as" only behind a number, for "twice as many" is an answer.
STATED_END = re.compile(r"[.!?](?=[\s*_\"'”]|$)|,?\s+(?:because|since|(?:(?<=[\d)}%$] )|(?<=, ))as)\b", re.I)
MARKED = re.compile(r"####\s*([^#]*\d[^#]*)")  # as GSM8K ends its solutions
EMPHASIS = re.compile(r"(\*\*|`+)(.+)\1", re.S)
MAX_BARE = 100


def final_answer(reply: str) -> str | None:
    """The answer a reply settles on, as written; None when it settles on none."""
    text = after_thinking(reply)
    tagged = tagged_in(text)
    found = _stated(text if tagged is None else tagged)
    if found is None:
        found = _bare(text) if tagged is None else tagged
    found = found.strip()
    emphasis = EMPHASIS.fullmatch(found)
    return (emphasis[2].strip() if emphasis else found) or None


def concluded(answer: str) -> str:
    """What a worked solution comes to, where it has one value and tags hold all its lines: the last one's result."""
    *before, last = (line.strip() for line in answer.strip().splitlines() if line.strip())
    if not before or "\\begin" in answer:
        return answer
    return last.rpartition("=")[2].strip().removesuffix(".") or last


def after_thinking(reply: str) -> str:
    """The reply without its thought blocks, or all of it when nothing is said after the last of them."""
    said: list[str] = []
    at, inside = 0, False
    for tag in THINK.finditer(reply):
        if tag[1] and not inside:
            said.append(reply[at : tag.start()])
        elif tag[2] and not inside:
            said.clear()  # the opening tag was in the prompt, as some chat templates have it
        inside, at = bool(tag[1]), tag.end()
    said.append(reply[at:])
    return reply if inside or not said[-1].strip() else "".join(said)


def tagged_in(text: str) -> str | None:
    """What the last closed, filled pair of solution tags holds; one cut off at the end counts if it is one line."""
    held: str | None = None
    start: int | None = None
    for tag in TAG.finditer(text):
        if tag[1]:
            start = tag.end()
        elif start is not None:
            held, start = text[start : tag.start()].strip() or held, None
    if held is None and start is not None and "\n" not in text[start:].strip():
        held = text[start:]
    return held


def _stated(text: str) -> str | None:
    for find in (_boxed, _marked, _sentence):
        found = find(text)
        if found is not None:
            return found
    return None


def _boxed(text: str) -> str | None:
    """The last box's content (of nested boxes, the innermost). One pass, whatever the nesting."""
    last: tuple[int, str] | None = None
    open_braces: list[int | None] = []  # where a box's content starts, or None for an ordinary brace
    for token in BRACE.finditer(text):
        if token[1]:
            open_braces.append(token.end())
        elif token[2]:
            last = token.start(), token[2].rstrip(".,;")
        elif token[3] == "{":
            open_braces.append(None)
        elif token[3] == "}" and open_braces:
            start = open_braces.pop()
            if start is not None and (last is None or start > last[0]):
                last = start, text[start : token.start()]
    return last[1] if last else None


def _marked(text: str) -> str | None:
    """What stands behind #### on the last line, unless it is a heading that says "answer" itself."""
    marked = MARKED.fullmatch(text.rstrip().rpartition("\n")[2])
    return marked[1] if marked and not CUE.search(marked[1]) else None


def _sentence(text: str) -> str | None:
    """What the last "answer is" or "answer:" states, to the end of its sentence; 3.5 does not end one."""
    for cue in reversed(list(CUE.finditer(text))):
        found = STATED.match(text, cue.end())
        stated = found and (found[1] or found[2] or STATED_END.split(found[3], maxsplit=1)[0].rstrip("*_ \t"))
        if stated:  # "I know what the answer is." states none
            return stated
    return None


def _bare(text: str) -> str:
    """The whole reply where it is one short line of mathematics or one letter; empty where it is prose."""
    line = text.strip()
    if "\n" in line or len(line) > MAX_BARE:
        return ""
    if re.fullmatch(r"\(?[A-Ja-j]\)?\.?", line):
        return line
    prose = re.search(r"[^\W\d_]{2,}", re.sub(r"\\[A-Za-z]+", " ", line))
    return line if re.search(r"\d|\\[A-Za-z]", line) and not prose else ""
