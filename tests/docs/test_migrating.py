"""The migration page lists all names of the other libraries, and only existing names of flowdsl."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

import flowdsl as fl
from tests.checkers import mypy

pytest.importorskip("tensorflow")  # which the names of the integration need

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "migrating.md").read_text()

TENSORPACK = {
    "DataFlow": "__iter__ __len__ reset_state",
    "ProxyDataFlow": "ds",
    "RNGDataFlow": "rng",
    "DataFlowTerminated": "",
    "TestDataSpeed": "ds size warmup start",
    "PrintData": "ds num name max_depth max_list",
    "BatchData": "ds batch_size remainder use_list aggregate_batch data_holder",
    "BatchDataByShape": "ds batch_size idx",
    "FixedSizeData": "ds size keep_state",
    "MapData": "ds func",
    "MapDataComponent": "ds func index",
    "RepeatedData": "ds num",
    "RepeatedDataPoint": "ds num",
    "RandomChooseData": "df_lists",
    "RandomMixData": "df_lists",
    "JoinData": "df_lists",
    "ConcatData": "df_lists",
    "SelectComponent": "ds idxs",
    "LocallyShuffleData": "ds buffer_size num_reuse shuffle_interval",
    "CacheData": "ds shuffle",
    "HDF5Data": "filename data_paths shuffle",
    "LMDBData": "lmdb_path shuffle keys",
    "LMDBDataDecoder": "lmdb_data decoder",
    "CaffeLMDB": "lmdb_path shuffle keys",
    "SVMLightData": "filename shuffle",
    "ImageFromFile": "files channel resize shuffle",
    "AugmentImageComponent": "ds augmentors index copy catch_exceptions",
    "AugmentImageCoordinates": "ds augmentors img_index coords_index copy catch_exceptions",
    "AugmentImageComponents": "ds augmentors index coords_index copy catch_exceptions",
    "MultiProcessRunner": "ds num_prefetch num_proc",
    "MultiProcessRunnerZMQ": "ds num_proc hwm",
    "MultiThreadRunner": "get_df num_prefetch num_thread",
    "MultiThreadMapData": "ds num_thread map_func buffer_size strict",
    "MultiProcessMapData": "num_proc map_func buffer_size strict",
    "MultiProcessMapDataZMQ": "num_proc map_func buffer_size strict",
    "MultiProcessMapAndBatchData": "num_proc map_func batch_size buffer_size",
    "MultiProcessMapAndBatchDataZMQ": "num_proc map_func batch_size buffer_size",
    "FakeData": "shapes size random dtype domain",
    "DataFromQueue": "queue",
    "DataFromList": "lst shuffle",
    "DataFromGenerator": "gen",
    "DataFromIterable": "iterable",
    "send_dataflow_zmq": "df addr hwm format bind",
    "RemoteDataZMQ": "addr1 addr2 hwm bind cnt1 cnt2 bind_or_connect",
    "LMDBSerializer": "save df path write_frequency load shuffle",
    "NumpySerializer": "save df path load shuffle",
    "TFRecordSerializer": "save df path load size",
    "HDF5Serializer": "save df path data_paths load shuffle",
}

INPUT_SOURCES = {
    "PlaceholderInput": "",
    "FeedInput": "ds infinite",
    "QueueInput": "ds queue",
    "BatchQueueInput": "ds batch_size queue",
    "DummyConstantInput": "shapes",
    "TensorInput": "get_tensor_fn size",
    "ZMQInput": "end_point hwm bind",
    "TFDatasetInput": "dataset dataflow_to_dataset df types",
    "StagingInput": "input nr_stage device",
    "remap_input_source": "input names",
    "InputSource": "setup setup_done get_input_tensors reset_state size get_callbacks",
}

TRAIN = {
    "TrainConfig": "dataflow data model callbacks extra_callbacks monitors starting_epoch "
    "steps_per_epoch max_epoch nr_tower tower predict_tower session_creator session_config "
    "session_init",
    "Trainer": "train main_loop run_step epoch_num local_step global_step register_callback "
    "get_predictor get_predictors",
    "StopTraining": "",
    "SimpleTrainer": "config",
    "QueueInputTrainer": "config input_queue",
    "SyncMultiGPUTrainerReplicated": "config gpu_prefetch",
    "SyncMultiGPUTrainerParameterServer": "",
    "SyncMultiGPUTrainer": "",
    "AsyncMultiGPUTrainer": "",
    "DistributedReplicatedTrainer": "",
    "LeastLoadedDeviceSetter": "",
    "MultiGPUTrainerBase": "",
    "FeedfreeTrainerBase": "",
    "SingleCostFeedfreeTrainer": "",
    "SimpleFeedfreeTrainer": "",
}

CALLBACKS = {
    "ModelSaver": "max_to_keep keep_checkpoint_every_n_hours checkpoint_dir var_collections",
    "MinSaver": "monitor_stat reverse filename checkpoint_dir",
    "MaxSaver": "",
    "InferenceRunner": "input infs",
    "DataParallelInferenceRunner": "input infs gpus",
    "ScalarStats": "names prefix",
    "ClassificationError": "wrong_tensor_name summary_name",
    "BinaryClassificationStats": "pred_tensor_name label_tensor_name prefix",
    "ScheduledHyperParamSetter": "param schedule interp step_based",
    "HyperParamSetterWithFunc": "param func",
    "HumanHyperParamSetter": "param file_name",
    "StatMonitorParamSetter": "param stat_name value_func threshold last_k",
    "PeriodicTrigger": "callback every_k_steps every_k_epochs",
}

IMGAUG = {
    "Affine": "scale translate_frac rotate_max_deg shear interp border border_value",
    "Albumentations": "augmentor",
    "AugmentorList": "augmentors",
    "Brightness": "delta clip",
    "BrightnessScale": "range clip",
    "CenterCrop": "crop_shape",
    "CenterPaste": "background_shape background_filler",
    "Clip": "min max",
    "ColorSpace": "mode keepdims",
    "ConstantBackgroundFiller": "value",
    "Contrast": "factor_range rgb clip",
    "Flip": "horiz vert prob",
    "Gamma": "range",
    "GaussianBlur": "size_range sigma_range symmetric max_size",
    "GaussianNoise": "sigma clip",
    "GoogleNetRandomCropAndResize": "crop_area_fraction aspect_ratio_range target_shape interp",
    "Grayscale": "keepdims rgb keepshape",
    "Hue": "range rgb",
    "Identity": "",
    "ImageAugmentor": "",
    "JpegNoise": "quality_range",
    "Lighting": "std eigval eigvec clip",
    "MapImage": "func coord_func",
    "MeanVarianceNormalize": "all_channel",
    "MinMaxNormalize": "min max all_channel",
    "RandomApplyAug": "aug prob",
    "RandomChooseAug": "aug_lists",
    "RandomCrop": "crop_shape",
    "RandomCropRandomShape": "wmin hmin wmax hmax max_aspect_ratio",
    "RandomCutout": "h_range w_range fill",
    "RandomOrderAug": "aug_lists",
    "RandomPaste": "background_shape background_filler",
    "RandomResize": "xrange yrange minimum aspect_ratio_thres interp",
    "Resize": "shape interp",
    "ResizeShortestEdge": "size interp",
    "Rotation": "max_deg center_range interp border step_deg border_value",
    "RotationAndCropValid": "max_deg interp step_deg",
    "SaltPepperNoise": "white_prob black_prob",
    "Saturation": "alpha rgb clip",
    "Shift": "horiz_frac vert_frac border border_value",
    "ToFloat32": "",
    "ToUint8": "",
    "Transpose": "prob",
}

_EACH = "num_epochs shuffle seed capacity shared_name name"
_MANY = "batch_size capacity enqueue_many shapes allow_smaller_final_batch shared_name name"

TF_TRAIN = {
    "match_filenames_once": "pattern name",
    "limit_epochs": "tensor num_epochs name",
    "input_producer": f"input_tensor element_shape {_EACH} summary_name cancel_op",
    "range_input_producer": f"limit {_EACH}",
    "slice_input_producer": f"tensor_list {_EACH}",
    "string_input_producer": f"string_tensor {_EACH} cancel_op",
    "batch": f"tensors num_threads dynamic_pad {_MANY}",
    "maybe_batch": f"tensors keep_input num_threads dynamic_pad {_MANY}",
    "batch_join": f"tensors_list dynamic_pad {_MANY}",
    "maybe_batch_join": f"tensors_list keep_input dynamic_pad {_MANY}",
    "shuffle_batch": f"tensors min_after_dequeue num_threads seed {_MANY}",
    "maybe_shuffle_batch": f"tensors min_after_dequeue keep_input num_threads seed {_MANY}",
    "shuffle_batch_join": f"tensors_list min_after_dequeue seed {_MANY}",
    "maybe_shuffle_batch_join": f"tensors_list min_after_dequeue keep_input seed {_MANY}",
}

NOT_YET = set[str]()

SHOWN_BY = {
    "apply": "docs/adding-an-operator.md",
    "QueueInput": "tests/tensorflow/inputs/test_queue_input.py",
}
"""Names that no example on the page shows, and the page or test that shows them."""


@attrs.frozen
class Row:
    """A row of a table: the old name, the name in flowdsl, and a remark."""

    before: str
    chains: str
    remark: str


@attrs.frozen
class Section:
    """The text between two headings."""

    title: str
    text: str
    rows: list[Row]

    def __str__(self) -> str:
        return self.title

    @property
    def examples(self) -> str:
        return "\n".join(re.findall(r"```python\n(.*?)```", self.text, re.DOTALL))


def _sections() -> Iterator[Section]:
    for part in re.split(r"^#+ ", PAGE, flags=re.MULTILINE)[1:]:
        title, _, text = part.partition("\n")
        lines = re.findall(r"^\| (.*) \|$", re.sub(r"\| \|", "|  |", text), re.MULTILINE)
        cells = [[cell.strip() for cell in line.split(" | ")] for line in lines]
        yield Section(title, text, [Row(*row) for row in cells[1:]])


SECTIONS = list(_sections())
TITLES = [section.title for section in SECTIONS]
TF_STARTS = TITLES.index("tf.train queues")
TABLES = [section for section in SECTIONS if section.rows]


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))


def _missing(names: dict[str, str], sections: list[Section], always: set[str]) -> dict[str, str]:
    """Return the names without a row, and the options that no row of their name mentions."""
    missing: dict[str, str] = {}
    for name, options in names.items():
        rows = [row for s in sections for row in s.rows if name in _words(row.before)]
        documented = always.union(*(_words(f"{row.before} {row.remark}") for row in rows))
        wanted = set(options.split()) - documented
        if wanted or not rows:
            missing[name] = " ".join(sorted(wanted))
    return missing


mypy.add(
    "callback_of_migrating.py",
    "import tensorflow as tf\n\nfrom flowdsl import train as training\n\n\n"
    + "".join(
        line[4:]
        for line in re.findall(r"^>>> class Decay.*\n(?:\.\.\..*\n)+", PAGE, re.MULTILINE)[
            0
        ].splitlines(keepends=True)
    ),
)


def test_type_checkers_accept_the_callback() -> None:
    assert mypy.in_program("callback_of_migrating.py") == []


def test_the_page_has_its_tables() -> None:
    assert sum(len(section.rows) for section in TABLES) > 70
    for row in (row for section in TABLES for row in section.rows):
        assert row.before
        assert row.chains or row.remark, row.before


def test_every_name_of_tensorpack_is_listed() -> None:
    names = TENSORPACK | INPUT_SOURCES | TRAIN | CALLBACKS | IMGAUG
    assert _missing(names, SECTIONS[:TF_STARTS], set()) == {}


def test_every_name_of_tf_train_is_listed() -> None:
    sections = SECTIONS[TF_STARTS:]
    (options,) = (section for section in sections if section.title == "Their options")
    documented = {word for row in options.rows for word in _words(row.before)}
    assert _missing(TF_TRAIN, sections, documented) == {}
    assert documented - {"option"} <= {
        option for name in TF_TRAIN.values() for option in name.split()
    }


def test_a_missing_name_is_detected() -> None:
    section = Section("x", "", [Row("`A(ds, size=1)`", "", "no `seed`")])
    assert _missing({"A": "ds size seed"}, [section], set()) == {}
    assert _missing({"A": "ds num", "B": ""}, [section], set()) == {"A": "num", "B": ""}


# -- what the chains name --------------------------------------------------------------------------


@attrs.frozen
class Use:
    """A name of flowdsl in a chain, and the object that has it."""

    name: str
    home: object
    options: tuple[str, ...]


def _uses(chain: str) -> Iterator[Use]:
    """Return the names in a chain: of ``fl``, ``flowdsl.tensorflow.inputs``, a flow or a run."""
    tree = ast.parse(f"flow{chain}" if chain.startswith(".") else chain, mode="eval")
    calls = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            call = calls.get(id(node))
            options = tuple(k.arg for k in call.keywords if k.arg) if call else ()
            yield Use(node.attr, _home(node.value), options)


def _home(value: ast.expr) -> object:
    if isinstance(value, ast.Name):
        homes: dict[str, object] = {"fl": fl, "run": fl.Run, "flowdsl": fl}
        return homes.get(value.id, fl.Flow)
    if isinstance(value, ast.Attribute) and value.attr == "tensorflow":
        for room in ("inputs", "queues", "train"):
            importlib.import_module(f"flowdsl.tensorflow.{room}")
        return importlib.import_module("flowdsl.tensorflow")
    if isinstance(value, ast.Attribute) and value.attr in ("inputs", "queues", "train"):
        return importlib.import_module(f"flowdsl.tensorflow.{value.attr}")
    return fl.Flow


def _is_there(use: Use) -> bool:
    if use.home is fl and use.name == "tensorflow":
        return True  # a module that import flowdsl does not import
    found = getattr if use.home is fl else inspect.getattr_static  # fl imports some when asked
    if found(use.home, use.name, None) is None:
        return False
    if not use.options:
        return True
    return set(use.options) <= set(inspect.signature(getattr(use.home, use.name)).parameters)


_CHAIN = re.compile(r"(?:fl|[ab]|run|flowdsl)?\.\w.*|\w+\(flow\)")


def _chains_in(text: str) -> list[str]:
    return [span for span in re.findall(r"`([^`]+)`", text) if _CHAIN.fullmatch(span)]


def _chains(row: Row) -> Iterator[tuple[str, bool]]:
    """Return the chains of a row, and True if the page says that a feature is missing."""
    for part in (*row.chains.split("; "), *row.remark.split("; ")):
        for chain in _chains_in(part):
            yield chain, part.startswith("not yet: ")


CHAINS = [
    (section, chain, not_yet)
    for section in TABLES
    for row in section.rows
    for chain, not_yet in _chains(row)
]


@pytest.mark.parametrize(("section", "chain", "not_yet"), CHAINS, ids=lambda x: str(x)[:60])
def test_names_in_chains_exist_and_are_shown(section: Section, chain: str, not_yet: bool) -> None:
    missing = {use.name for use in _uses(chain) if not _is_there(use)}
    assert missing <= NOT_YET
    assert bool(missing) == not_yet
    for use in _uses(chain):
        if _is_there(use) and use.name not in ("tensorflow", "inputs"):
            page = SHOWN_BY.get(use.name)
            examples = (ROOT / page).read_text() if page else section.examples
            assert use.name in _words(examples), f"no example of {use.name} in: {section.title}"


def test_existing_features_are_not_listed_as_missing() -> None:
    uses = (use for _, chain, _ in CHAINS for use in _uses(chain))
    assert {use.name for use in uses if not _is_there(use)} == NOT_YET


def test_names_in_prose_exist() -> None:
    prose = re.sub(r"(?ms)^```.*?^```$|^\|[^\n]*$", "", PAGE)
    chains = _chains_in(prose)
    assert len(chains) > 5
    for chain in chains:
        assert all(map(_is_there, _uses(chain))), chain


def test_every_section_describes_differences() -> None:
    for section in TABLES:
        if section.title not in ("Other machines", "Their options"):
            assert "Different on purpose: " in section.text, section.title


def test_links_are_valid() -> None:
    for target in re.findall(r"\]\(([^)]+)\)", PAGE):
        assert (ROOT / "docs" / target).is_file(), target
