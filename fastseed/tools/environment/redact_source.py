"""What stands beside a secret's name in source, configuration or a diff of them, line by line.

Nothing is parsed. On a line that names a password, a token, a key, … code loses all that is in
quotes, and other text all behind the name; so do the lines that belong to it: by brackets and
adjacent literals in code, by indentation, sections and open quotes in other text. That takes out
too much now and then, and never needs to understand a language. Linear in the length of the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

MARK = "<redacted>"

Spans = list[tuple[int, int]]

# Anywhere in a line. Short ones are words of their own, or the end of one: `dbpass`, `BINDPW`.
_STRONG = re.compile(
    r"""
      (?P<plain>(?i:passw(?:or)?d|passwrd|passphrase|passcode|kennwort|secret|credential|bearer|cookie
        |authori[sz]ation|webhook|mnemonic|jwt|conn(?:ection)?[-_ ]?str(?:ing)?\b
        |(?:api|access|private|ssh|auth|sign(?:ing)?|account|encryption|master|deploy|license)
          [-_. ]?key(?!word|board)))
    | (?P<tokens>(?i:tokens))
    | (?P<token>(?i:token(?!i[sz])))
    | (?P<short>(?:[Pp]wd|[Pp]w|(?<=[A-Za-z0-9_-])(?<!com)(?<!by)(?<!sur)[Pp]ass)(?![a-z])
      |(?:PWD|PW|PASS)(?![A-Z])
      |(?<![A-Za-z])(?:o?auth|creds?|psk|otp|dsn|salt|vault|hmac)(?![a-z])
      |(?<![A-Z])(?:O?AUTH|CREDS?|PSK|OTP|DSN|SALT|VAULT|HMAC)(?![A-Z])
      |(?:(?<=[a-z])|(?<![A-Za-z]))(?:O?Auth|Creds?|Psk|Otp|Dsn|Salt|Vault|Hmac)(?![a-z])
      |(?<![A-Za-z])[Pp]ass(?=_))
    | (?P<pass>\b[Pp]ass\b)
    """,
    re.VERBOSE,
)
# One of these is in all that the pattern finds: most lines have none, and looking is quick.
_HINTS = (
    *("pass", "pw", "kennwort", "secret", "credential", "bearer", "cookie", "auth", "webhook"),
    *("mnemonic", "jwt", "conn", "key", "token", "cred", "psk", "otp", "dsn", "salt", "vault"),
    "hmac",
)
# Of a model's tokens, not of a service's: numbers stay.
_COUNTED = re.compile(
    r"(?i)tokens|token[-_ ]?(?:ids?|count|len|length|size|num|limit|type|index|dim)(?![a-z])"
    r"|(?:max|min|num|n|per|total|count)[-_ ]?(?:new[-_ ]?)?token"
)
_NUMBER = re.compile(r"[-+]?\d[\d_.]{0,20}(?:[eE][-+]?\d{1,4})?[kKMGB]?(?![\w.])")
_SWITCH = re.compile(r"(?i)\W*(?:true|false|null|none|yes|no|on|off)\W*\Z")


def _names_secret(line: str) -> bool:
    lower = line.lower()
    return any(hint in lower for hint in _HINTS) and bool(_STRONG.search(line))


def counts(name: str) -> bool:
    """Whether a name is that of a number of tokens rather than of a token."""
    kinds = {found.lastgroup for found in _STRONG.finditer(name)}
    return kinds <= {"token", "tokens"} and bool(_COUNTED.search(name))


def blank(text: str, comment: str, *, diff: bool) -> tuple[str, int]:
    """``text`` without what stands beside names of secrets, and how many pieces were taken out.

    Args:
        text: lines; every one of them stays, and a diff's sign with it.
        comment: ``"#"`` or ``"//"``, what begins a comment, for code; ``""`` for other text.
        diff: whether lines begin with a sign; both of its files are then followed for themselves.
    """
    make: Callable[[], _Text | _Code] = (lambda: _Code(comment)) if comment else _Text
    old, new = make(), make()
    out, removed = [], 0
    for line in text.split("\n"):
        head, content = split_line(line) if diff else ("", line)
        if head.startswith("@@"):
            old.hunk()
            new.hunk()
        spans: Spans = []
        if not diff or head != "-":
            spans += new.line(content)
        if diff and head != "+":
            spans += old.line(content)
        content, pieces = _cut(content, spans)
        removed += pieces
        out.append(head + content)
    return "\n".join(out), removed


def split_line(line: str) -> tuple[str, str]:
    """A diff's line as its sign and what follows; git's heading of a hunk follows its numbers."""
    if line.startswith("@@"):
        found = re.match(r"@@[-+ ,\d]{1,200}@@ ?", line)
        return (found.group(), line[found.end() :]) if found else ("", line)
    if line.startswith("\\"):
        return line, ""
    return line[:1], line[1:]


def _cut(line: str, spans: Spans) -> tuple[str, int]:
    parts, at, pieces = [], 0, 0
    for low, high in sorted(spans):
        low = max(low, at)
        if low >= high or not line[low:high].replace(MARK, "").strip():
            continue
        parts += [line[at:low], MARK]
        at, pieces = high, pieces + 1
    return "".join(parts) + line[at:], pieces


def _indentation(line: str) -> int:
    """Columns before the first character; a notebook's lines are strings within its own."""
    return len(line) - len(line.lstrip(' \t"'))


# ---------------------------------------------------------------- text that is no code

_SECTION = re.compile(r"\s*\[{1,2}[^\[\]]{1,200}\]{1,2}\s*(?:[#;].*)?\Z")
_SEPARATOR = re.compile(
    r"[\w.-]{0,99}[\\\"'`\])}>\s]{0,99}"
    r"(?P<sign>=>|:=|\?=|\+=|[!=]==?|=~|=|:|(?:is|was|are)\b)?[ \t]*"
)
_OPENING = re.compile(r"(?:[\[\]{}()|>\\,;\"'`+\s-]|\\n|(?<=[|>])\d)*\Z")
_KEY = re.compile(r"\s*(?:-\s+)*(?:([\"']?)[A-Za-z_-]{1,24}\1(?:\s*(?:=>|:(?=\s|\Z))|\s+=\s)\s*)?")
_QUOTED = re.compile(r"\"[^\"\\]*(?:\\.[^\"\\]*)*\"?|'[^'\\]*(?:\\.[^'\\]*)*'?|`[^`]*`?")
_COMPARED = re.compile(r"(?<!\S)(\S{1,200})\s{1,9}(?:[!=]=|=|-eq|-ne)\s{1,9}[\"'$({]{0,4}\Z")
_NAMED = re.compile(r"[Nn]ame[\"']?\s{0,9}[:=]\s{0,9}[\"']?[\w.-]{0,60}\Z")
_VALUE = re.compile(r"\W*\w{0,20}(?:[Vv]alue|[Dd]efault)\w{0,20}\W*?(?:=>|[:=])\s*")


def _opens(rest: str) -> bool:
    """Whether nothing but signs stands there: what is meant stands in the lines below."""
    return len(rest) < 200 and bool(_OPENING.match(rest))


def _is_switch(rest: str) -> bool:
    return len(rest) < 60 and bool(_SWITCH.match(rest))


class _Block(NamedTuple):
    indentation: int
    whole: bool  # its lines go whole: a block scalar, or what continues a value
    listed: bool  # a list's lines may stand as far left as its name


class _Text:
    """Configuration, data, shell scripts, prose."""

    def __init__(self) -> None:
        self._blocks: list[_Block] = []
        self._section = self._continued = False
        self._quote = ""
        self._named = 0  # lines to come in which the value of a name may stand

    def hunk(self) -> None:
        self._quote, self._continued, self._named = "", False, 0

    def line(self, line: str) -> Spans:
        if not line.strip():
            return []
        indentation, end = _indentation(line), len(line.rstrip())
        if self._quote:
            if self._quote in line:
                self._quote = ""
            return [(indentation, end)]
        inside = self._inside(line, indentation)
        if not inside and _SECTION.match(line):
            self._section = _names_secret(line)
            return []
        continued, self._continued = self._continued, False
        spans: Spans = []
        if inside or self._section or continued:
            whole = continued or bool(self._blocks and self._blocks[-1].whole)
            spans = self._member(line, indentation, end, whole)
            self._continued = line.rstrip().endswith("\\") and not self._section
        elif self._named:
            self._named -= 1
            if found := _VALUE.match(line):
                spans = [(found.end(), end)]
        return spans + self.beside(line, indentation, end)

    def _inside(self, line: str, indentation: int) -> bool:
        item = line.lstrip().startswith("- ")
        while self._blocks:
            block = self._blocks[-1]
            if indentation > block.indentation or (
                item and block.listed and indentation == block.indentation
            ):
                return True
            self._blocks.pop()
        return False

    def _member(self, line: str, indentation: int, end: int, whole: bool) -> Spans:
        if whole:
            return [(indentation, end)]
        found = _KEY.match(line)
        start = found.end() if found else indentation
        rest = line[start:end]
        if _opens(rest):
            if rest[:1] in ("|", ">"):
                self._blocks.append(_Block(indentation, True, False))
            return []
        return [] if _is_switch(rest) else [(start, end)]

    def beside(self, line: str, indentation: int, end: int) -> Spans:
        """What stands beside the first name that counts on a line; what follows is remembered."""
        for found in _STRONG.finditer(line) if _names_secret(line) else ():
            separator = _SEPARATOR.match(line, found.end())
            assert separator is not None  # all of it is optional
            sign = separator["sign"]
            if sign or found.lastgroup not in ("tokens", "pass"):
                break
        else:
            return []
        name = line[max(found.start() - 60, 0) : separator.end("sign") if sign else found.end()]
        start = min(separator.end(), end)
        rest = line[start:end]
        self._remember(line, indentation, found.start(), found.end(), sign, rest)
        spans = [
            quoted.span()
            for quoted in _QUOTED.finditer(line, 0, found.start())
            if not re.match(r"\s{0,9}(?::|=>)", line[quoted.end() : quoted.end() + 12])
        ]
        if compared := _COMPARED.search(line, max(found.start() - 300, 0), found.start()):
            spans.append(compared.span(1))
        if _opens(rest) or _is_switch(rest):
            return spans
        if counts(name) and (number := _NUMBER.match(rest)):
            start += number.end()
            if not re.search(r"\w", line[start:end]):
                return spans
        return [*spans, (start, end)]

    def _remember(
        self, line: str, indentation: int, at: int, past: int, sign: str | None, rest: str
    ) -> None:
        if _NAMED.search(line, max(at - 99, 0), at):
            self._named = 3
            self._blocks.append(_Block(indentation, False, False))
            return
        self._continued = line.rstrip().endswith("\\")
        assigned = sign in (":", "=", "=>", ":=", "+=", "?=")
        if _opens(rest):
            opened = rest[:1] in ("{", "[") or (not sign and line.rstrip().endswith(">"))
            if assigned or opened:
                self._blocks.append(_Block(indentation, rest[:1] in ("|", ">"), True))
        elif assigned and not _is_switch(rest):
            self._blocks.append(_Block(indentation, True, False))
        value = re.sub(r"^[\w.-]{0,99}[\"'\])}\s]{0,9}[:=]{1,2}>?\s{0,99}", "", line[past:])
        for quote in ('"""', "'''", '"', "'"):
            if value.startswith(quote):
                if value.count(quote) % 2:
                    self._quote = quote
                break


# ---------------------------------------------------------------- code

_TOKEN = re.compile(r"\"\"\"|'''|[\"'`]|#|//|/\*|[()\[\]{}]")
_ENDS = {
    '"': re.compile(r"[^\"\\]*(?:\\.[^\"\\]*)*"),
    "'": re.compile(r"[^'\\]*(?:\\.[^'\\]*)*"),
    "`": re.compile(r"[^`\\]*(?:\\.[^`\\]*)*"),
}
_BARE = re.compile(r"\s*[rbfuRBFU]{0,2}([\"'`])[^\"'`]*\1\s*,?\Z")
_GOES_ON = re.compile(r"\s*(?:[rbfuRBFU]{0,2}[\"'`]|[+.?:|&]|(?:or|and|if|else|in|not in|==|!=)\b)")
_NOT_DONE = re.compile(r"(?:[=+?:|&%(\[{\\]|\b(?:or|and|else|in|not|return|is))\Z")
_STATEMENT = re.compile(
    r"\s*(?:(?:async|export|default|pub|public|private|protected|static|inline|constexpr)\s+)*"
    r"(?:def|class|if|elif|else|for|while|with|try|except|finally|match|case|switch|struct|enum"
    r"|namespace|interface|impl|fn|func|function|template|do)\b"
)
_BODY = re.compile(r"\)[\w\s:&*<>,-]{0,80}\{\Z")
_FUNCTION = re.compile(
    r"\b(?:def|function|func|fn)\s+(\w{1,99})|\b(\w{1,99})\s?\([^()]{0,200}\)[^;]{0,80}\{"
)
_PASS = re.compile(r"\b[Pp]ass\b[\"'`\])]{0,9}\s{0,9}[:=!]|[\"'`][Pp]ass[\"'`]")
_RETURNS = re.compile(r"\b(?:return|yield)\b")
_NAME = re.compile(r"[\w.-]{1,60}")


class _Scan(NamedTuple):
    literals: Spans  # what is within quotes
    comment: int  # where a comment begins, or the length of the line
    depth: list[int]  # +1 and -1 for brackets
    quote: str  # a literal that goes on in the next line


class _Code:
    """Python with ``#``; C and what looks like it with ``//``."""

    def __init__(self, comment: str) -> None:
        self._comment = comment
        self.hunk()

    def hunk(self) -> None:
        self._quote = ""
        self._secret = False  # whether that literal is
        self._active = self._pending = False
        self._depth = self._floor = 0
        self._returns = -1
        self._text = _Text()

    def line(self, line: str) -> Spans:
        within = self._quote
        scan = self._scan(line)
        indentation, end = _indentation(line), len(line.rstrip())
        code = line[: scan.comment]
        hit = _names_secret(line) and self._counts(line, code)
        going_on = self._active or (self._pending and bool(_GOES_ON.match(line)))
        if self._returns >= 0 and code.strip():
            if indentation <= self._returns and code.strip()[0] not in "{})":
                self._returns = -1
            hit = hit or (self._returns >= 0 and bool(_RETURNS.search(code)))
        spans: Spans = []
        if within and self._secret:
            spans = scan.literals[:1]
        elif within and hit:  # text in a literal that is no secret as a whole
            spans = self._text.beside(line, indentation, end)
        if (hit and not within) or going_on:
            spans += [s for s in scan.literals if going_on or not self._is_key(line, *s)]
            if scan.comment < len(line):
                spans.append((scan.comment + len(self._comment), end))
        if not within or going_on:
            self._follow(line, code, scan, hit, going_on, indentation)
        if scan.quote and scan.quote != within:
            self._secret = hit or going_on
        elif not scan.quote:
            self._secret = False
        self._quote = scan.quote
        return spans

    def _counts(self, line: str, code: str) -> bool:
        """Whether a name means a secret here: a comment may speak of a model's tokens."""
        kinds = {found.lastgroup for found in _STRONG.finditer(code)}
        if kinds:  # `pass` is a statement
            return kinds != {"pass"} or bool(_PASS.search(code))
        rest = line[len(code) :]
        kinds = {found.lastgroup for found in _STRONG.finditer(rest)}
        return not kinds <= {"token", "tokens", "pass"} or bool(
            re.search(r"\d|[\"'`:=]|\b(?:is|was|are)\b", rest)
        )

    def _follow(
        self, line: str, code: str, scan: _Scan, hit: bool, going_on: bool, indentation: int
    ) -> None:
        """Remember whether the next line belongs to this one."""
        code = code.rstrip()
        if not code and (hit or self._active):
            return  # a comment alone
        if not hit and not going_on:
            self._pending = False
            return
        steps = scan.depth
        statement = bool(_STATEMENT.match(code))
        body = code.endswith("{") and (statement or bool(_BODY.search(code[-100:])))
        if body:
            steps = steps[:-1]
        function = _FUNCTION.search(code[:2000]) if hit else None
        if function and _STRONG.search(function[1] or function[2]):
            self._returns = indentation
        if not self._active:
            self._depth, self._floor = 0, 0 if hit and _BARE.match(code) else 1
            for step in steps:
                self._depth = self._depth + step if self._floor == 0 else max(self._depth + step, 0)
        else:
            self._depth += sum(steps)
        self._active = self._depth >= self._floor
        if not self._active:
            self._pending = not code.endswith((",", ";"))
            header = body or (statement and code.endswith(":"))
            if _NOT_DONE.search(code[-12:]) and not header:  # the next line, and what it opens
                self._active, self._depth, self._floor = True, 0, 1

    @staticmethod
    def _is_key(line: str, low: int, high: int) -> bool:
        """Whether a literal is a name itself: what is looked up, an option, a variable."""
        text = line[low:high]
        if not _NAME.fullmatch(text) or re.search(r"\d", text) or not _STRONG.search(text):
            return False
        after = line[high + 1 : high + 12].lstrip()[:1]
        return after in ("]", ":") or (
            after in (",", ")") and (text.startswith("--") or text.isupper())
        )

    def _scan(self, line: str) -> _Scan:
        literals: Spans = []
        depth: list[int] = []
        at, quote = 0, self._quote
        while True:
            if quote:
                low = at
                if len(quote) == 3:
                    at = line.find(quote, low)
                    at = len(line) if at < 0 else at
                else:
                    found = _ENDS[quote].match(line, low)
                    at = found.end() if found else len(line)
                    at = len(line) if not line.startswith(quote, at) else at
                literals.append((low, at))
                if at >= len(line):
                    long = len(quote) == 3 or quote == "`" or line.endswith("\\")
                    return _Scan(literals, len(line), depth, quote if long else "")
                at, quote = at + len(quote), ""
            token = _TOKEN.search(line, at)
            if token is None:
                return _Scan(literals, len(line), depth, "")
            at, text = token.end(), token.group()
            if text in "([{":
                depth.append(1)
            elif text in ")]}":
                depth.append(-1)
            elif text == self._comment or (text == "/*" and self._comment == "//"):
                return _Scan(literals, token.start(), depth, "")
            elif text[0] in "\"'`":
                quote = text
