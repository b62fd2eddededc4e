# SPDX-FileCopyrightText: the fastseed authors
# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""The seed of a rollout: one file of plain Python, to copy. Equal to ``fastseed.rollouts.seed``.

The seed is a function of the run's master seed, the point in time (task, epoch, step), the prompt,
the sample and the turn: never of a position in a batch, a worker or an order. It is frozen, and
``python rollout_seed.py`` checks it. docs/spec/derivation.md of fastseed specifies every bit.
"""

import hashlib


def philox(key, w0, w1, w2, w3):
    """Philox4x32-10 (Salmon et al., SC'11) of a 64-bit key and four words: two 64-bit numbers."""
    k0, k1, low = key & 0xFFFFFFFF, key >> 32, 0xFFFFFFFF
    for _ in range(10):
        p0, p1 = 0xD2511F53 * w0, 0xCD9E8D57 * w2
        w0, w1, w2, w3 = p1 >> 32 ^ w1 ^ k0, p1 & low, p0 >> 32 ^ w3 ^ k1, p0 & low
        k0, k1 = k0 + 0x9E3779B9 & low, k1 + 0xBB67AE85 & low
    return w0 | w1 << 32, w2 | w3 << 32


def low_high(number):
    return number & 0xFFFFFFFF, number >> 32


def number_of(prompt):
    """A number in [0, 2**64), or 64 bits of SHA-256: of a text, or of 255 and the token ids."""
    if type(prompt) is int:
        return prompt
    if type(prompt) is str:
        data = prompt.encode()
    elif type(prompt) in (list, tuple) and all(type(token) is int for token in prompt):
        data = b"\xff" + b"".join(token.to_bytes(4, "little") for token in prompt)
    else:
        raise TypeError(f"{prompt!r} must be an int, a str, or a list or tuple of token ids")
    return int.from_bytes(hashlib.sha256(data).digest()[:8], "little")


def seed(step, prompt, sample, *, master_seed, turn=0, task=0, epoch=0, name="rollout", bits=63):
    """The seed of a rollout, in [0, 2**bits); bits is 63, or 31 for engines with 32-bit seeds."""
    index = number_of(prompt)
    limits = ((step, 2**64), (index, 2**64), (master_seed, 2**64), (sample, 2**32), (epoch, 2**32))
    for value, limit in (*limits, (task, 2**24), (turn, 2**24 - 1)):
        if type(value) is not int:
            raise TypeError(f"{value!r} must be an int")
        if not 0 <= value < limit:
            raise ValueError(f"{value} must be in [0, {limit})")
    if type(bits) is not int or bits not in (63, 31):
        raise ValueError(f"bits must be 63 or 31, got {bits!r}")
    if type(name) is not str or not name:
        raise ValueError(f"name must be a string that is not empty, got {name!r}")
    digest = hashlib.sha256(name.encode()).digest()
    words = [int.from_bytes(digest[i : i + 4], "little") for i in (0, 4, 8, 12)]
    key, tweak = philox(master_seed, *low_high(step), epoch, task | 1 << 24)
    low, high = low_high(tweak)
    key, tweak = philox(key, words[0] ^ low, words[1] ^ high, *words[2:])
    return philox(key, *low_high(index ^ tweak), turn | 2 << 24, sample)[0] & 2**bits - 1


KNOWN = (  # (step, prompt, sample, master_seed), the other coordinates, the seed
    ((0, 0, 0, 0), {}, 1620587902972193933),
    ((0, 0, 0, 42), {}, 9086364290774735653),
    ((3, 0, 0, 42), {}, 8289389468468632370),
    ((3, 0, 1, 42), {}, 8606223786305804989),
    ((3, 1, 0, 42), {}, 7256314431017268728),
    ((3, 1, 1, 42), {}, 4847584437782537390),
    ((3, 1, 1, 43), {}, 4967648795360975728),
    ((4, 1, 1, 42), {}, 4722489935000966778),
    ((3, 1, 1, 42), {"turn": 1}, 3241642004099808421),
    ((3, 1, 1, 42), {"task": 1}, 4319388060410498710),
    ((3, 1, 1, 42), {"epoch": 1}, 6151920529490994279),
    ((3, 1, 1, 42), {"name": "noise"}, 7405977685833637232),
    ((3, 1, 1, 42), {"bits": 31}, 1354589358),
    ((3, "What is 7 * 8?", 0, 42), {}, 6046037050508140924),
    ((3, "What is 7 * 8?", 1, 42), {}, 400187838658152262),
    ((3, "", 0, 42), {}, 3433382741207484615),
    ((3, "äβ中", 0, 42), {}, 2021379391383547446),
    ((3, [1, 15, 4], 0, 42), {}, 2350100276078774100),
    ((3, [], 0, 42), {"turn": 2}, 6604591847997967928),
    ((2**64 - 1, 2**64 - 1, 2**32 - 1, 2**64 - 1),
     {"turn": 2**24 - 2, "task": 2**24 - 1, "epoch": 2**32 - 1},
     7047154867233680249),
)  # fmt: skip

if __name__ == "__main__":
    for (*at, master_seed), others, expected in KNOWN:
        assert seed(*at, master_seed=master_seed, **others) == expected, (at, others)
