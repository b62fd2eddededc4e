"""Taking secrets out of text, before any of it is written.

Three ways, since none is enough alone. By *value*: whatever an environment variable with a secret's
name holds, or the user part of any URL, is removed wherever else it occurs (:meth:`Scrubber.study`
first, then scrub). By *name*: what is assigned to a secret's name. By *form*: tokens of known
services, keys, web hooks; where nothing but configuration or code stands, also whatever looks
random. What is taken out is written ``<redacted>``. In diffs, which show source by the page, all
that stands beside a secret's name goes, without these rules' care (`blanking`).

Nothing of a removed value is kept, not even its hash: a short secret's hash lets it be guessed.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote, quote_plus, unquote

from .entropy import looks_random
from .redact_source import MARK, blank, counts, split_line
from .variable_names import is_secret

__all__ = ["MARK", "Scrubber", "found_name", "looks_random"]

# The user part of a URL; a slash in an unquoted password is taken along, as clients would not.
_USERINFO = re.compile(
    r"(?P<head>(?<![A-Za-z0-9])[A-Za-z][A-Za-z0-9+.-]{0,30}:/{1,3})(?P<secret>[^\s/'\"<>]{1,2000}"
    r"|[^\s/:'\"<>@]{1,200}:(?!\d{1,5}/)[^\s'\"<>@]{0,2000})"
    r"(?P<tail>@)"
)
# user:secret@host without a scheme, as in proxies and scp-like remotes.
_BARE_USERINFO = re.compile(
    r"(?P<head>(?<![\w:.-])[\w.+-]{1,100}:)(?P<secret>[^\s/:@'\"<>]+)(?P<tail>@[A-Za-z0-9\[])"
)
_PLAIN_USERS = ("git", "hg", "ssh", "svn")
_QUERY = re.compile(
    r"(?P<head>(?<![A-Za-z0-9])[a-z][a-z0-9+.-]{0,30}://[^\s?#'\"<>]{1,2000}\?)(?P<secret>[^\s#'\"<>]+)",
    re.I,
)
_URL = re.compile(r"(?<![A-Za-z0-9])[a-z][a-z0-9+.-]{0,30}://[^\s'\"<>]+", re.I)

# name = value, name: value, --name=value, "name": "value", name["x"] = value; the value unquoted,
# or in quotes that may be escaped (JSON in JSON, notebooks) and may start on the next line.
# Bounded, and from a word's start only: no text takes more than linear time.
_NAME = r"(?P<name>(?<!\w)[A-Za-z_][\w.-]{0,99})"
_LITERAL = (
    r"(?:[rbfuRBFU]{0,2})(?:(?P<t>\"\"\"|''')(?P<long>.{1,20000}?)(?P=t)|"
    r"(?P<q>\\?[\"'`])(?P<secret>(?:(?!(?P=q))[^\n])+)(?:(?P=q)|(?=\n)|\Z))"
)
_LINK = (
    r"(?P<link>(?:\\?[\"'])?\s*\]?\s*(?::\s*[\w.\[\], |]{1,80}?\s*)?(?:=>|:=|\?=|\+=|==|=|:)"
    r"[ \t]*[(\[{]?[ \t]*(?:\\?\n[-+ ]?[ \t]*)?)"
)
_QUOTED = re.compile(_NAME + _LINK + _LITERAL, re.DOTALL)
_CALL = re.compile(  # setdefault("NAME", "value"), ("name", "value")
    r"(?P<o>\\?[\"'])" + _NAME + r"(?P=o)(?P<link>\s*,\s*)" + _LITERAL, re.DOTALL
)
_UNQUOTED = re.compile(
    _NAME
    # In the next line only what is no name of its own.
    + r"(?P<link>(?:\\?[\"'])?\s*(?:=>|:=|\?=|=|:)[ \t]*(?:\n[-+ ]?[ \t]*(?:-[ \t]+)?"
    r"(?![\w.-]{1,99}\\?[\"']?\s{0,9}[:=]))?)(?P<secret>[^\s\"'`,;&|)}\]<>\\]{1,4000})"
)
_OPTION = re.compile(
    r"(?<![\w-])--?" + _NAME + r"(?P<link>[ \t]+|=|\s*\\?\n[-+ ]?[ \t]*)(?P<secret>(?!-)[^\s\"'=]+)"
)
_ELEMENT = re.compile(r"<" + _NAME + r"(?P<link>[^<>]*>)(?P<secret>[^<>]+)(?=</)")
_NETRC = re.compile(
    r"(?P<name>\bpassword|\bpasswd|\baccount)(?P<link>[ \t]+)(?P<secret>[^\s=:]{4,})"
)
_HEADER = re.compile(  # not "basic training": a digit, an equals sign or some length
    r"(?i)\b(?P<head>(?:bearer|basic|digest|negotiate)(?:[ \t]+|\n[-+ ]?[ \t]*))"
    r"(?P<secret>(?=\S*[\d=]|\S{20})[\w.~+/=-]{6,})"
)

_AUTHORIZATION = re.compile(  # of any scheme: "token …", "ApiKey …"
    r"(?i)(?P<head>\bauthorization\b\\?[\"']?\s{0,9}[:=][ \t]{0,9}(?:\n[-+ ]?[ \t]{0,99})?\\?[\"']?"
    r"(?:[a-z][\w-]{0,30}[ \t]+)?)"
    r"(?P<secret>[^\s\"'\\,;]+)"
)
_COMMAND = re.compile(  # NAME value
    r"\b(?:ENV|setenv|set -\w{1,5}|configure set)[ \t]+"
    + _NAME
    + r"(?P<link>[ \t]+)(?P<secret>\S+)"
)
_LISTED = re.compile(  # "name": NAME, "value": value
    r"\b[Nn]ame\\?[\"']?\s{0,9}[:=]\s{0,9}\\?[\"']?" + _NAME + r"(?P<link>\\?[\"']?[\s,+-]{0,99}"
    r"\\?[\"']?[Vv]alue\\?[\"']?\s{0,9}[:=]\s{0,9}\\?[\"']?)(?P<secret>[^\s\"'\\,}]+)"
)
_USER_OPTION = re.compile(
    r"(?P<head>(?<![\w-])(?:-u|--user)[ =][\"']?[^\s:\"'/=]{1,100}:)(?P<secret>[^\s\"':/][^\s\"']*)"
)
_PASSWORD_OPTION = re.compile(
    r"(?P<head>\b(?:sshpass|login|mysql\w*|mariadb\w*)\b[^\n|;&]{0,200}? -p ?[\"']?)"
    r"(?P<secret>[^\s\"']+)"
)
_CONNECTION = re.compile(  # Password=with spaces;
    r"(?i)(?P<head>;\s{0,9}(?:password|pwd)\s{0,9}=)(?P<secret>[^;\n\"']{1,200})(?=;|\Z)"
)

# Forms of keys and tokens, as their issuers document them.
_FORMS = re.compile(
    r"""
      -----BEGIN[ ][A-Z0-9 ]*-----.*?(?:-----END[ ][A-Z0-9 ]*-----|\Z)   # PEM, PGP, OpenSSH
    | PuTTY-User-Key-File-\d.*?(?:Private-MAC:[^\n]*|\Z)
    | AGE-SECRET-KEY-[0-9A-Z]+
    | \b(?:gh[pousr]_|github_pat_|glpat-|gl[a-z]{2,5}-|hf_|npm_|pypi-|dckr_pat_|shpat_|shpss_
      |r8_|nvapi-|dop_v1_|doo_v1_|glsa_|glc_|hvs\.|hvb\.|lin_api_|ATATT3|ATCTT3|sk-|sk_live_|sk_test_
      |rk_live_|pk_live_|whsec_|xox[abceoprs]-|xapp-|SG\.|sq0[a-z]{3}-|ya29\.|1//0|EAA[A-Z]|dp\.[a-z]{2}\.
      |pul-|tfp_|secret_|ntn_|figd_|PMAK-|NRAK-|sntrys_|sntryu_|wandb_v1_|tskey-|gsk_|xai-|AQ\.
      )[\w.~-]{10,}
    | \b(?:AKIA|ASIA|AROA|AIDA|ABIA|ACCA)[A-Z0-9]{12,}
    | \bAIza[\w-]{30,}
    | \bey[JI][\w-]{6,}\.ey[JI][\w-]{4,}(?:\.[\w-]*)?                     # JWT
    | \b(?:SK|AC)[0-9a-f]{32}\b                                           # Twilio
    | \bkey-[0-9a-f]{32}\b                                                # Mailgun
    | \b[0-9a-f]{32}-us\d{1,2}\b                                          # Mailchimp
    | \b\d{8,10}:AA[\w-]{30,}                                             # Telegram
    | \b[MNO][\w-]{22,27}\.[\w-]{6}\.[\w-]{27,}                           # Discord
    | (?<=hooks\.slack\.com/)[^\s'"<>]+
    | (?<=/api/webhooks/)[^\s'"<>]+
    | (?<=/webhook/)[^\s'"<>]+
    | (?<=/webhookb2/)[^\s'"<>]+
    | (?<=/t/)[\w-]{8,}(?=/)                                              # conda channels
    """,
    re.VERBOSE | re.DOTALL,
)

_RANDOM = re.compile(r"[A-Za-z0-9+/_=~.-]{20,}")
_COMMON = frozenset(
    (
        *("true", "false", "none", "null", "yes", "no", "on", "off", "auto", "default"),
        *("enabled", "disabled"),
    )
)


class Scrubber:
    """Takes secrets out of text; learns values first, with :meth:`study`.

    Args:
        environ: environment variables; the values of those with a secret's name are learnt.
    """

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._known: set[str] = set()
        self._pattern: re.Pattern[str] | None = None
        self.removed = 0
        for name, value in (environ or {}).items():
            if is_secret(name):
                self.learn(value)
            self.study(value)

    def learn(self, value: str) -> None:
        """Remove ``value`` wherever it occurs, as it is, percent-encoded or in base 64."""
        value = value.strip()
        if not _worth(value):
            return
        before = len(self._known)
        encoded = base64.b64encode(value.encode("utf-8", "surrogateescape")).decode()
        forms = {
            value,
            quote(value, safe="", errors="replace"),
            quote_plus(value, errors="replace"),
        }
        self._known |= forms | {unquote(value), encoded, encoded.rstrip("=")}
        if len(self._known) != before:
            self._pattern = None

    def study(self, value: Any) -> None:
        """Learn the secrets that strings of ``value`` (nested lists and dicts) show."""
        if isinstance(value, str):
            for pattern in (_USERINFO, _BARE_USERINFO):
                for found in pattern.finditer(value):
                    self._learn_user(found["secret"])
            for pattern in (_QUOTED, _UNQUOTED, _OPTION):
                for found in pattern.finditer(value) if len(value) < 1 << 16 else ():
                    secret = found["secret"] or ""
                    # Only what cannot be a word of its own: `key: value` is everywhere.
                    if is_secret(found["name"]) and re.search(r"\d", secret):
                        self.learn(secret)
        elif isinstance(value, Mapping):
            for one in value.values():
                self.study(one)
        elif isinstance(value, Iterable):
            for one in value:
                self.study(one)

    def _learn_user(self, user: str) -> None:
        name, _, password = user.partition(":")
        self.learn(password)
        if len(name) >= 20 or (not password and name not in _PLAIN_USERS):
            self.learn(name)

    # ------------------------------------------------------------ scrubbing

    def tree(self, value: Any, names: bool = False) -> Any:
        """``value`` with every string in it, keys too, scrubbed.

        With ``names`` the keys are packages' names, where `libsecret-1-0:amd64` assigns nothing.
        """
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            key_of = self._common if names else self.text
            return {key_of(str(key)): self.tree(one, names) for key, one in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.tree(one, names) for one in value]
        return value

    def text(self, text: str) -> str:
        """A text of any kind: known values, user parts and queries of URLs, assignments, tokens."""
        text = self._common(text)
        text = self._assigned(_QUOTED, text)
        text = self._assigned(_OPTION, text)
        text = self._assigned(_ELEMENT, text)
        return self._assigned(_UNQUOTED, text)

    def strict(self, text: str) -> str:
        """As :meth:`text`, and whatever looks random: for command lines and unknown variables."""
        text = self.text(text)
        return self._random(text)

    def code(self, text: str, *, literals: bool) -> str:
        """Source or configuration: with ``literals`` a value counts only in quotes, as in Python,
        where `key = make_key()` assigns no secret."""
        text = self._common(text)
        for pattern in (_QUOTED, _CALL, _ELEMENT, _NETRC):
            text = self._assigned(pattern, text)
        if not literals:
            text = self._assigned(_UNQUOTED, text)
        text = self._assigned(_OPTION, text)
        return self._random(text)

    def source(self, text: str, comment: str, *, diff: bool) -> str:
        """A file, or with ``diff`` one file's hunks, whose lines begin with a sign.

        ``comment`` begins a comment where it is code, and is empty where it is not.
        """

        def within(text: str, rule: Callable[[str], str]) -> str:
            lines = [split_line(line) if diff else ("", line) for line in text.split("\n")]
            clean = rule("\n".join(line for _, line in lines)).split("\n")
            if len(clean) != len(lines):  # no rule takes lines out
                clean = [MARK] * len(lines)
            return "\n".join(head + line for (head, _), line in zip(lines, clean, strict=True))

        # Keys of many lines first: what is blanked may be their first line.
        text = within(text, lambda t: _FORMS.sub(self._mark, self._known_values(t)))
        text, removed = blank(text, comment, diff=diff)
        self.removed += removed
        return within(text, lambda t: self.code(t, literals=bool(comment)))

    def arguments(self, arguments: Sequence[str]) -> list[str]:
        """A command line: also what follows an option of a secret's name, `-p` and `-u`."""
        found: list[str] = []
        for argument in arguments:
            before = found_name(arguments[len(found) - 1]) if found else ""
            if before and not argument.startswith("-"):
                self.removed += 1
                found.append(MARK)
            elif re.match(r"-p(?!\d+$)[^-/.=\s]", argument) or (
                found and arguments[len(found) - 1] in ("-u", "--user") and ":" in argument
            ):
                self.removed += 1
                found.append(argument[:2] + MARK if argument.startswith("-p") else MARK)
            else:
                found.append(self.strict(self.code(argument, literals=True)))
        return found

    def variable(self, name: str, value: str, *, allowed: bool) -> str:
        """An environment variable's value; of one that is not on the allow-list more is removed."""
        if allowed:
            return self.text(value)
        if is_secret(name) or "-----BEGIN" in value:
            self.removed += 1
            return MARK
        urls = _URL.sub(lambda url: _origin(url.group()), value)
        return self.strict(urls)

    # ------------------------------------------------------------ rules

    def _common(self, text: str) -> str:
        text = self._known_values(text)
        text = _FORMS.sub(self._mark, text)
        text = _USERINFO.sub(self._user, text)
        text = _BARE_USERINFO.sub(self._user, text)
        for pattern in (
            _QUERY,
            _AUTHORIZATION,
            _HEADER,
            _USER_OPTION,
            _PASSWORD_OPTION,
            _CONNECTION,
        ):
            text = pattern.sub(self._inner, text)
        for pattern in (_COMMAND, _LISTED):
            text = self._assigned(pattern, text)
        return text

    def _known_values(self, text: str) -> str:
        if self._pattern is None:
            parts = []
            for value in sorted(self._known, key=len, reverse=True):
                # A short value is removed as a word of its own only.
                short = len(value) < 8
                parts.append(rf"(?<!\w){re.escape(value)}(?!\w)" if short else re.escape(value))
            self._pattern = re.compile("|".join(parts) if parts else r"(?!)")
        return self._pattern.sub(self._mark, text)

    def _assigned(self, pattern: re.Pattern[str], text: str) -> str:
        """Replace the group ``secret`` of each match whose group ``name`` is a secret's."""
        parts, at, start = [], 0, 0
        while found := pattern.search(text, at):
            group = "secret" if found["secret"] is not None else "long"
            low, high = found.span(group)
            if is_secret(found["name"]) and not _harmless(found["name"], found[group]):
                self.removed += 1
                parts += [text[start:low], _blank(found[group])]
                start = at = high
            else:  # the value may be a name itself: go on right behind this one
                at = found.end("name")
        return "".join(parts) + text[start:] if parts else text

    def _random(self, text: str) -> str:
        def replace(found: re.Match[str]) -> str:
            if not looks_random(found.group()):
                # A path or a dotted name: each of its parts for itself.
                parts = re.split(r"([/.=])", found.group())
                if not any(len(part) >= 20 and looks_random(part) for part in parts):
                    return found.group()
            return self._mark(found)

        return _RANDOM.sub(replace, text)

    def _mark(self, found: re.Match[str]) -> str:
        self.removed += 1
        return _blank(found.group())

    def _inner(self, found: re.Match[str]) -> str:
        self.removed += 1
        return found["head"] + MARK

    def _user(self, found: re.Match[str]) -> str:
        if found["secret"] in _PLAIN_USERS or found["secret"] == MARK:
            return found.group()
        self.removed += 1
        return found["head"] + MARK + found["tail"]


def _blank(text: str) -> str:
    """The mark, once a line and behind a diff's sign, so that what counts lines still can."""
    rest = text.split("\n")[1:]
    return "\n".join([MARK, *((line[:1] if line[:1] in "+- " else "") + MARK for line in rest)])


def found_name(argument: str) -> str:
    """The name of an option of a command line whose value is a secret, "" for any other."""
    if re.match(r"--?[A-Za-z]", argument) and "=" not in argument:
        name = argument.lstrip("-")
        return name if is_secret(name) else ""
    return ""


def _origin(url: str) -> str:
    """Scheme and host of a URL: its path may be the secret, as a web hook's is."""
    scheme, _, rest = url.partition("://")
    host = re.split(r"[/?#]", rest.rpartition("@")[2])[0]
    return f"{scheme}://{host}" + (f"/{MARK}" if len(url) > len(scheme) + 3 + len(host) + 1 else "")


def _worth(value: str) -> bool:
    """Whether a value is a secret rather than a switch, a small number or a folder."""
    if len(value) < 4 or value == MARK or value.lower() in _COMMON or value.startswith(("/", "~")):
        return False
    if len(value) < 6:
        return any(c.isdigit() for c in value) and any(c.isalpha() for c in value)
    return True


def _harmless(name: str, value: str) -> bool:
    return (
        value.startswith(MARK)
        or value.lower() in _COMMON
        or bool(re.fullmatch(r"[\d.]{1,3}", value))
        or (bool(re.fullmatch(r"[\d._]{1,20}", value)) and counts(name))
    )
