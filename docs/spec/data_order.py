# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Which samples a training step had, and which steps had a sample, from a contract of fastseed.

``data_order.py contract.json at EPOCH STEP`` and ``... where SAMPLE FIRST_EPOCH LAST_EPOCH`` print
(epoch, step, rank, slot, row, position, sample, occurrence). data-order.md defines the terms.
It needs Python 3.10 or newer, and nothing else."""
import bisect, functools, hashlib, itertools, json, math, sys  # noqa: E401, I001

def block(key, w0, w1, w2, w3):  # Philox4x32-10
    k0, k1 = key & 0xFFFFFFFF, key >> 32
    for _ in range(10):
        p0, p1 = 0xD2511F53 * w0, 0xCD9E8D57 * w2
        w0, w1, w2, w3 = p1 >> 32 ^ w1 ^ k0, p1 & 0xFFFFFFFF, p0 >> 32 ^ w3 ^ k1, p0 & 0xFFFFFFFF
        k0, k1 = k0 + 0x9E3779B9 & 0xFFFFFFFF, k1 + 0xBB67AE85 & 0xFFFFFFFF
    return w0 | w1 << 32, w2 | w3 << 32

def stream_key(contract, epoch, name, domain, rank, worker, index):
    key, tweak = block(contract["master_seed"], 0, 0, epoch, contract["task"] | 1 << 24)
    name = int.from_bytes(hashlib.sha256(name.encode()).digest()[:16], "little") ^ tweak
    key, tweak = block(key, *(name >> shift & 0xFFFFFFFF for shift in (0, 32, 64, 96)))
    index ^= tweak
    return block(key, index & 0xFFFFFFFF, index >> 32, rank | domain << 24, worker)

def permute(key, n, i, back=False):  # the number at position i, or back: the position of number i
    a = max(4, (math.isqrt(n - 1) + 2) // 2 * 2)  # an even number
    b = max(4, -(-n // a))
    rounds = range(24 if n <= 2**16 else 12)
    left, right = divmod(i, b)
    while True:
        for r in reversed(rounds) if back else rounds:
            v, m = (left, b) if r % 2 else (right, a)
            move = block(key[0], v, r | 5 << 24, key[1] & 0xFFFFFFFF, key[1] >> 32)[0] * m >> 64
            move = -move if back else move
            left, right = (left, (right + move) % b) if r % 2 else ((left + move) % a, right)
        if left * b + right < n:
            return left * b + right

class Shuffle:  # the order of n samples; from position n on it comes again
    def __init__(self, contract, epoch, order):
        self.n, self.is_kept = order["n"], order["kind"] == "sequence"
        self.key = stream_key(contract, epoch, order["name"], 5, 0, 0, self.n)
    def entry(self, p):  # (sample, occurrence) at position p
        return p % self.n if self.is_kept else permute(self.key, self.n, p % self.n), p // self.n
    def places(self, sample, limit):  # (position, occurrence) below a limit
        first = sample if self.is_kept else permute(self.key, self.n, sample, back=True)
        return [(p, p // self.n) for p in range(first, limit, self.n) if 0 <= sample < self.n]

class Mixture:  # samples of several sources, numbered one source after another
    def __init__(self, contract, epoch, order):
        self.key, self.order = functools.partial(stream_key, contract, epoch), order
        self.start = self.key(order["name"], 2, 2**24 - 1, 0, 0)[0] % 2**32
        self.ends = list(itertools.accumulate(source["share"] for source in order["sources"]))
        self.sources_of = functools.lru_cache(64)(self.sources_of)
    def sources_of(self, b):  # the source of each position of a block
        key = self.key(self.order["name"], 5, 2**24 - 1, 0, b)
        points = (self.start + (1024 * b + permute(key, 1024, i)) * 2654435769 for i in range(1024))
        return [bisect.bisect_right(self.ends, point % 2**32) for point in points]
    def before(self, s, b):  # how often source s comes before a block
        y = self.start - self.ends[s] + 2**32
        return floor_sum(1024 * b, y + self.order["sources"][s]["share"]) - floor_sum(1024 * b, y)
    def permuted(self, source, times, i, back=False):
        key = self.key(source["name"], 5, 0, times, source["size"])
        return permute(key, source["size"], i, back) if self.order["shuffled"] else i
    def entry(self, p):
        b, i = divmod(p, 1024)
        s = self.sources_of(b)[i]
        source, turn = self.order["sources"][s], self.before(s, b) + self.sources_of(b)[:i].count(s)
        times, i = divmod(turn + source["skip"], source["size"])
        first = sum(other["size"] for other in self.order["sources"][:s])
        return first + self.permuted(source, times, i), times
    def places(self, sample, limit):
        blocks, s, found = range(-(-limit // 1024) + 1), 0, []
        while s < len(self.ends) and sample >= self.order["sources"][s]["size"]:
            sample, s = sample - self.order["sources"][s]["size"], s + 1
        if s == len(self.ends) or sample < 0:  # no such sample in this order
            return []
        source, count = self.order["sources"][s], self.before(s, blocks[-1])
        size, skip = source["size"], source["skip"]
        for times in range(skip // size, -(-(count + skip) // size)):
            turn = times * size - skip + self.permuted(source, times, sample, back=True)
            if 0 <= turn < count:
                b = bisect.bisect_right(blocks, turn, key=functools.partial(self.before, s)) - 1
                own = [i for i, other in enumerate(self.sources_of(b)) if other == s]
                found.append((1024 * b + own[turn - self.before(s, b)], times))
        return [(p, times) for p, times in found if p < limit]

def floor_sum(n, b, m=2**32, a=2654435769):  # of (a i + b) div m over i in [0, n)
    total = 0
    while n:
        total += n * (n - 1) // 2 * (a // m) + n * (b // m)
        (n, b), a, m = divmod(a % m * n + b % m, m), m, a % m
    return total

def parts(contract, epoch):  # steps that are alike: entry, positions, order, n, removed samples
    if [contract[k] for k in ("format", "version", "derivation")] != ["fastseed.lineage", 1, 1]:
        raise ValueError("not a contract of this version")
    entries = [e for e in contract["entries"] if e["epoch"] == epoch and e["step"] > 0]
    for e in [e for e in contract["entries"] if (e["epoch"], e["step"]) <= (epoch, 0)][-1:]:
        entries.insert(0, e if e["epoch"] == epoch else dict(e, epoch=epoch, step=0, position=0))
    for entry, after in itertools.zip_longest(entries, entries[1:], fillvalue={"step": 2**63}):
        if entry["order"] < 0:  # the job stopped
            continue
        spec, slots, p = contract["orders"][entry["order"]], entry["slots"], entry["position"]
        kind = {"shuffle": Shuffle, "sequence": Shuffle, "mixture": Mixture}[spec["kind"]]
        share, batch = 1 if slots else entry["ranks"], entry["batch_size"] * (slots or 1)
        own = (max(0, spec["n"] - p) + (0 if entry["ranks_drop_last"] else share - 1)) // share
        count = own // batch if entry["drop_last"] else -(-own // batch)  # steps
        end, first = p + share * (count * batch if slots else own), entry["step"]
        last = min(first + count, after["step"], max(first, entry.get("steps") or 2**63))
        skips = [(s["first"], s["last"] + 1) for s in contract["skips"] if s["epoch"] == epoch]
        cuts = [q["step"] for q in contract["quarantines"] if q["epoch"] == epoch] + [first, last]
        cuts = sorted(min(max(first, cut), last) for cut in {*cuts, *itertools.chain(*skips)})
        for a, b in itertools.pairwise(cuts):
            if a < b and not any(begin <= a < stop for begin, stop in skips):
                removed = {sample for q in contract["quarantines"] for sample in q["samples"]
                           if (q["epoch"], q["step"]) <= (epoch, a)}
                start, stop = (min(end, p + (step - first) * batch * share) for step in (a, b))
                yield entry, range(start, stop), kind(contract, epoch, spec), spec["n"], removed

def fillers(order, n, removed, limit):  # (sample, occurrence) of the places of removed samples
    places = sorted(p for sample in removed for p, _ in order.places(sample, limit))
    spare = (order.entry(p) for p in itertools.count(n + 2**24))
    return dict(zip(places, (entry for entry in spare if entry[0] not in removed)))  # noqa: B905

def visit(entry, p, sample, occurrence):
    ranks, batch = entry["ranks"], entry["batch_size"]
    step, i = divmod(p - entry["position"], batch * (entry["slots"] or ranks))
    slot, row = divmod(i, batch) if entry["slots"] else (i % ranks, i // ranks)
    is_block = entry.get("assignment") == "blocks" and entry["slots"]
    rank = ((slot + 1) * ranks - 1) // entry["slots"] if is_block else slot % ranks
    return entry["epoch"], entry["step"] + step, rank, slot, row, p, sample, occurrence

def at(contract, epoch, step):
    for entry, positions, order, n, removed in parts(contract, epoch):
        size = entry["batch_size"] * (entry["slots"] or entry["ranks"])
        p = entry["position"] + (step - entry["step"]) * size
        here = range(max(p, positions.start), min(p + size, positions.stop))
        if here:
            filled = fillers(order, n, removed, here.stop)
            return [visit(entry, p, *(filled.get(p) or order.entry(p))) for p in here]
    return []

def where(contract, sample, epochs):
    found = []
    for epoch in epochs:
        for entry, positions, order, n, removed in parts(contract, epoch):
            filled = fillers(order, n, removed, positions.stop).items()
            here = [(p, times) for p, (other, times) in filled if other == sample]
            here += [] if sample in removed else order.places(sample, positions.stop)
            found += [visit(entry, p, sample, times) for p, times in sorted(here) if p in positions]
    return found

if __name__ == "__main__":
    loaded, (a, *b) = json.load(open(sys.argv[1], encoding="utf-8")), map(int, sys.argv[3:])  # noqa: SIM115
    print(*at(loaded, a, *b) if sys.argv[2] == "at" else where(loaded, a, range(b[0], b[1] + 1)))
