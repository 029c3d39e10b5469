"""Tokens a second of packed rows and of buckets: by flowdsl, by Grain, by tf.data.

python -m bench.texts
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

import flowdsl as fl
from bench.rates import Pass, Work, run

ROW, BINS, BATCH = 512, 64, 32
EDGES, SIZES = [64, 128, 256], [64, 32, 16, 8]
"""Buckets with batches of about equally many tokens."""

Tokens: TypeAlias = NDArray[np.int32]
Strategy: TypeAlias = Literal["concat", "first_fit", "best_fit"]


@cache
def sequences() -> list[Tokens]:
    """Texts of 8 to 512 tokens, most of them short; no token is 0, which is the padding."""
    rng = np.random.default_rng(0)
    sizes = rng.lognormal(4.5, 0.8, 5_000).astype(int).clip(8, ROW)
    return [rng.integers(1, 32_000, size, dtype=np.int32) for size in sizes]


def _checked(begin: Pass, tokens_of: Callable[[Any], Any], expected: list[Tokens]) -> Pass:
    """The passes of a contestant, which has shown that no token is lost."""
    found = np.concatenate([np.ravel(np.asarray(tokens_of(x))) for x in begin()])
    right = np.concatenate(expected)
    if not np.array_equal(np.sort(found[found > 0]), np.sort(right)):
        raise SystemExit(f"{np.count_nonzero(found)} tokens came, or others, of {len(right)}")
    return begin


def _whole(x: Any) -> Any:
    return x


# -- packing ---------------------------------------------------------------------------------------


def _packed(strategy: Strategy) -> Pass:
    flow: Any = fl.from_items(sequences())
    packed = flow.pack(ROW) if strategy == "concat" else flow.pack(ROW, strategy, bins=BINS)
    return _checked(lambda: packed, lambda row: row.tokens, sequences())


def _grain_packed(strategy: Strategy) -> Pass:
    grain: Any = import_module("grain")
    rows = grain.MapDataset.source([{"tokens": x} for x in sequences()]).to_iter_dataset()
    packed = _grain_packer(rows, strategy)
    return _checked(lambda: packed, lambda row: row["tokens"], sequences())


def _grain_packer(rows: Any, strategy: Strategy) -> Any:
    packers: Any = import_module("grain").experimental
    if strategy == "concat":
        return packers.ConcatThenSplitIterDataset(rows, length_struct={"tokens": ROW})
    first = strategy == "first_fit"
    packer = packers.FirstFitPackIterDataset if first else packers.BestFitPackIterDataset
    return packer(rows, length_struct={"tokens": ROW}, num_packing_bins=BINS, shuffle_bins=False)


@cache
def _tensors() -> tuple[Any, Any]:
    """TensorFlow, and the sequences as a dataset that its kernels read."""
    tf: Any = import_module("tensorflow")
    tf.config.threading.set_intra_op_parallelism_threads(2)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    tokens = tf.constant(np.concatenate(sequences()))
    ends = tf.constant(np.cumsum([0, *map(len, sequences())]))
    numbers = tf.data.Dataset.range(len(sequences()))
    return tf, numbers.map(lambda i: tokens[ends[i] : ends[i + 1]])


def _tf_concatenated() -> Pass:
    """Rows of tokens only: tf.data has no operator that numbers sequences and positions."""
    tf, dataset = _tensors()
    rows = dataset.flat_map(tf.data.Dataset.from_tensor_slices).batch(ROW)
    return _checked(lambda: rows.as_numpy_iterator(), _whole, sequences())


# -- buckets ---------------------------------------------------------------------------------------


def _buckets() -> Pass:
    flow = fl.from_items(sequences()).bucket_by_length(len, EDGES, SIZES)
    return _checked(lambda: flow, _whole, sequences())


def _tf_buckets() -> Pass:
    tf, dataset = _tensors()
    batches = dataset.bucket_by_sequence_length(lambda x: tf.shape(x)[0], EDGES, SIZES)
    return _checked(lambda: batches.as_numpy_iterator(), _whole, sequences())


# -- texts, which workers tokenize -----------------------------------------------------------------


@cache
def _vocabulary() -> dict[str, int]:
    rng = np.random.default_rng(0)
    letters = "abcdefghijklmnopqrstuvwxyz"
    parts = {"".join(rng.choice(list(letters), size)) for size in (2, 3) for _ in range(2000)}
    return {part: i for i, part in enumerate([*letters, *sorted(parts)], 1)}


@cache
def texts() -> list[str]:
    """Words of random letters."""
    rng = np.random.default_rng(1)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))

    def word() -> str:
        return "".join(rng.choice(letters, 6))

    words = [word() for _ in range(1000)]
    sizes = rng.integers(10, 120, 4000)  # long passes: a turn starts workers twice
    return [" ".join(words[i] for i in rng.integers(0, 1000, size)) for size in sizes]


def tokenized(text: str) -> Tokens:
    """The longest parts of each word that are in the vocabulary, in plain Python."""
    vocabulary, found = _vocabulary(), list[int]()
    for word in text.split():
        while word:
            size = next(k for k in (3, 2, 1) if word[:k] in vocabulary)
            found.append(vocabulary[word[:size]])
            word = word[size:]
    return np.array(found, np.int32)


@cache
def _all_tokens() -> list[Tokens]:
    return list(map(tokenized, texts()))


def _tokenized_and_packed() -> Pass:
    flow = fl.from_items(texts()).map(tokenized).pack(ROW).batch(BATCH).prefetch(procs=2)
    return _checked(lambda: flow, lambda batch: batch[0], _all_tokens())


def _one_by_one() -> Pass:
    """In one process, token by token, as without ``pack``."""
    flow = fl.from_items(texts()).flat_map(tokenized).batch(ROW).batch(BATCH, collate=list)
    return _checked(lambda: flow, np.concatenate, _all_tokens())


def _grain_tokenized() -> Pass:
    grain: Any = import_module("grain")
    import_module("absl.flags").FLAGS.mark_as_parsed()  # Grain reads flags of absl
    rows = grain.MapDataset.source(texts()).map(lambda text: {"tokens": tokenized(text)})
    packed = _grain_packer(rows.to_iter_dataset(), "concat").batch(BATCH, drop_remainder=False)
    loaded = packed.mp_prefetch(grain.MultiprocessingOptions(num_workers=2))
    return _checked(lambda: loaded, lambda batch: batch["tokens"], _all_tokens())


def _packing(strategy: Strategy, **others: Callable[[], Pass]) -> Work:
    contestants: dict[str, Callable[[], Pass]] = {
        "flowdsl": partial(_packed, strategy),
        "grain": partial(_grain_packed, strategy),
        **others,
    }
    return Work(sum(map(len, sequences())), contestants)


WORKS: dict[str, Work] = {
    "joined and cut": _packing("concat", **{"tf.data": _tf_concatenated}),
    "first fit": _packing("first_fit"),
    "best fit": _packing("best_fit"),
    "buckets": Work(sum(map(len, sequences())), {"flowdsl": _buckets, "tf.data": _tf_buckets}),
    "tokenized and packed": Work(
        sum(map(len, _all_tokens())),
        {"flowdsl": _tokenized_and_packed, "one by one": _one_by_one, "grain": _grain_tokenized},
        goal=2.0,
        of="one by one",
    ),
}

NEEDS = {"grain": "grain", "tf.data": "tensorflow"}


def main() -> None:
    run("bench.texts", __doc__, "tokens", WORKS, NEEDS, Path("out/texts.json"))


if __name__ == "__main__":
    main()
