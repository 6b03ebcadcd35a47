#!/usr/bin/env python3
"""Judges a history of jobs that `torture --history FILE` has written.

  judge.py FILE [--attempts N]

This is a second judge: it shares no code with the checker of `torture`, and its model is small. It
reads operations in the form of Jepsen (EDN, see `src/bin/torture/edn.rs`), and checks four promises
for each job:

  at least once  a job that the store acknowledged was done, or may have been, or is among the dead;
                 unless it was cancelled or replaced
  never early    no attempt begins before the time for which the job was scheduled
  fenced         each token of a key is of one attempt; none is newer than that of the attempt that
                 did the job; an attempt of a job that was replaced has a lower token than those of
                 the other one
  at most N      no job has more attempts than it may

It prints each promise that was broken. Its status is 1 if one was, and 2 if the history cannot be
read.
"""

import argparse
import collections
import re
import sys

TOKEN = re.compile(r'[\s,]*(?:([{}\[\]])|"((?:[^"\\]|\\.)*)"|([^\s,{}\[\]"]+))')


def read(text):
    """Returns the value that an EDN text stands for. Keywords are strings."""
    tokens = [match.groups() for match in TOKEN.finditer(text)]
    value, rest = parse(tokens)
    if rest:
        raise ValueError(f"more than one value: {text}")
    return value


def parse(tokens):
    (bracket, string, word), *rest = tokens
    if string is not None:
        return string.encode().decode("unicode_escape"), rest
    if word is not None:
        words = {"true": True, "false": False, "nil": None}
        if word in words:
            return words[word], rest
        return (word[1:] if word.startswith(":") else int(word)), rest
    close = {"[": "]", "{": "}"}[bracket]
    items = []
    while rest[0][0] != close:
        item, rest = parse(rest)
        items.append(item)
    if bracket == "[":
        return items, rest[1:]
    return dict(zip(items[::2], items[1::2])), rest[1:]


class Job:
    def __init__(self, due=()):
        # Each time for which it may be scheduled.
        self.due = set(due)
        self.is_acknowledged = self.may_be_gone = self.is_cancelled = self.is_dead = False
        # How many requests to schedule it are in doubt: each may have made a job that was done
        # before the next one. And how many asked to move it: then its attempts count anew.
        self.doubts = self.moves = 0
        # Tokens of attempts, and how each ended: the type and the end of the operation.
        self.attempts = {}

    def done(self):
        """Returns the tokens of the attempts that did the job, as the store said."""
        return [token for token, end in self.attempts.items() if end == ("ok", "done")]

    def may_be_done(self):
        # The end of an attempt is stale once there is a newer one. So the newest alone may have
        # done the job, unless there were more lives than one.
        has_one_life = self.attempts and not self.doubts and not self.moves
        judged = [max(self.attempts)] if has_one_life else self.attempts
        ends = [self.attempts[token] for token in judged]
        return any(end is None or end[0] == "info" or end == ("ok", "done") for end in ends)


class Key:
    """The job of a key, and the one that may have taken its place."""

    def __init__(self, most):
        self.most = most
        self.first, self.other = Job(), None
        self.was = None
        self.is_asked = False
        self.wrong = []

    def job(self, value):
        return self.other if value["other"] else self.first

    def take(self, how, f, value):
        getattr(self, f.replace("-", "_"))(how, value)

    def schedule(self, how, value):
        self.is_asked = True
        self.first.due.add(value["at"])
        self.first.is_acknowledged |= how == "ok"
        self.first.doubts += how == "info"

    def move(self, how, value):
        if how == "invoke":
            self.first.moves += 1
            self.first.due.add(value["at"])
        elif how == "ok":
            self.first.due = {value["at"]}

    def cancel(self, how, _):
        self.first.may_be_gone |= how == "invoke"
        self.first.is_cancelled |= how == "ok"

    def replace(self, how, value):
        if how == "invoke":
            self.first.may_be_gone = True
            self.other = Job([value["at"]])
        elif how == "ok":
            self.was = value["was"]
            # If the place was free, an attempt had done the first one.
            self.first.may_be_gone = self.was != "free"
            self.other.is_acknowledged = True

    def run(self, how, value):
        token = value["token"]
        if how != "invoke":
            self.end(token, how, value["end"])
            return
        job = self.job(value)
        if not self.is_asked or job is None:
            self.wrong.append("a handler got a job that nobody scheduled")
            return
        if token in self.first.attempts or self.other and token in self.other.attempts:
            self.wrong.append(f"fenced: two attempts have the token {token}")
        job.attempts[token] = None
        if value["now"] < max(value["at"], min(job.due)):
            self.wrong.append(f"never early: attempt {token} began at {value['now']}")
        if job.is_cancelled:
            self.wrong.append(f"attempt {token} began after the job was cancelled")
        if value["number"] > self.most:
            number = value["number"]
            self.wrong.append(f"at most {self.most}: attempt {token} has the number {number}")

    def give_up(self, how, value):
        """The store buries a job whose last attempt did not end."""
        if how == "ok" and value["end"] != "dead":
            self.wrong.append(f"the attempt {value['token']} ended, but did not run")

    def end(self, token, how, end):
        for job in filter(None, [self.first, self.other]):
            if token in job.attempts:
                job.attempts[token] = (how, end)

    def dead(self, how, value):
        job = self.job(value)
        if job is None:
            self.wrong.append("a job is dead that nobody scheduled")
        else:
            job.is_dead = True

    def judge(self):
        first, other = self.first, self.other
        for job in filter(None, [first, other]):
            if job.is_acknowledged and not job.may_be_gone and not job.is_dead:
                if not job.may_be_done():
                    self.wrong.append("at least once: lost")
            most = self.most * (1 + job.moves) * (1 + job.doubts)
            if len(job.attempts) > most:
                self.wrong.append(f"at most {self.most}: {len(job.attempts)} attempts")
            done = job.done()
            if job.doubts:
                continue
            if len(done) > 1:
                self.wrong.append(f"fenced: the attempts {done} all did the job")
            if done and max(job.attempts) > max(done):
                what = f"fenced: an attempt is newer than {max(done)}, which did the job"
                self.wrong.append(what)
            if done and job.is_dead:
                self.wrong.append("dead, although an attempt did it")
        if other and first.attempts and other.attempts:
            if max(first.attempts) > min(other.attempts):
                self.wrong.append("fenced: the token of a job that was replaced is not stale")
        if self.was in ("idle", "running") and first.done() and not first.doubts:
            self.wrong.append("fenced: the store took the end of a job that was replaced")
        return self.wrong


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", help="the history; - for the standard input")
    parser.add_argument("--attempts", type=int, default=5, help="how many a job may have")
    arguments = parser.parse_args()
    keys = collections.defaultdict(lambda: Key(arguments.attempts))
    operations = 0
    line = ""
    try:
        source = sys.stdin if arguments.file == "-" else open(arguments.file, encoding="utf-8")
        for line in source:
            operation = read(line)
            key, value = operation["value"]
            keys[key].take(operation["type"], operation["f"], value)
            operations += 1
    except (OSError, ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        print(f"cannot be read at {line.strip()!r}: {error!r}", file=sys.stderr)
        return 2
    if not operations:
        print("the history is empty", file=sys.stderr)
        return 2
    wrong = [f"{key}: {what}" for key, job in keys.items() for what in job.judge()]
    for what in wrong[:20]:
        print(what)
    print(f"{operations} operations on {len(keys)} keys, {len(wrong)} promises broken")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
