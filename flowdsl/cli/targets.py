"""Flows named on the command line: ``file.py:flow`` or ``module:flow``."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from types import FunctionType, ModuleType
from typing import Any

import attrs
import click
from typing_extensions import TypeIs

from flowdsl.flow import Flow
from flowdsl.nodes import FlowBase
from flowdsl.nodes.arguments import shown


class BadInput(click.ClickException):
    """Input that a command cannot use: exit status 2."""

    exit_code = 2


@attrs.frozen
class Target:
    """A flow named on the command line."""

    name: str
    """The target as it was given."""
    file: str | None
    """The file of its module; None if it has none."""
    flow: Flow[Any, Any]


def target_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the argument TARGET to a command."""
    return click.argument("target", type=load_target)(command)


def load_target(text: str) -> Target:
    """Import the module of a target and find its flow.

    Raises:
        BadInput: There is no such module or attribute, the attribute is not a flow, or the user's
            code failed.
    """
    module, path = _module_and_path(text, "train.py:train", _flows_listed)
    value = _attribute(module, path, _flows_listed)
    if not isinstance(value, FlowBase) and callable(value):
        value = _called(module, path, value)
    if not isinstance(value, Flow):
        raise BadInput(
            f"{path!r} in {_name(module)} is {shown(value)}; expected a flow, or a function "
            f"without arguments that returns one{_flows_listed(module)}"
        )
    return Target(text, getattr(module, "__file__", None), value)


def load_class(text: str) -> Any:
    """Import the module of ``file.py:Class`` or ``module:Class``, and return the class.

    Another description of a type, such as ``tuple[int, str]``, is returned too: a reader judges it.

    Raises:
        BadInput: There is no such module or attribute, or the user's code failed.
    """
    module, path = _module_and_path(text, "train.py:Word", _classes_listed)
    return _attribute(module, path, _classes_listed)


def _module_and_path(
    text: str, example: str, listed: Callable[[ModuleType], str]
) -> tuple[ModuleType, str]:
    where, colon, path = text.rpartition(":")
    if not colon or not path or not where:
        where = where or path
        end = listed(_imported(where)) if where.endswith(".py") else ""
        form = f"FILE.py:NAME or MODULE:NAME, such as {example}"
        raise BadInput(f"expected {form}, got {text!r}{end}")
    return _imported(where, path), path


def _imported(where: str, path: str = "NAME") -> ModuleType:
    """Import a file or module; ``path`` is the attribute that is asked for, for messages."""
    if where.endswith(".py") or os.sep in where:
        return _imported_file(Path(where), path)
    _search_first(os.getcwd())  # as ``python -m`` does; a console script does not
    try:
        found = importlib.util.find_spec(where)
    except ModuleNotFoundError:
        found = None
    except Exception as error:  # a parent package runs the user's code
        raise _failed(error, where) from error
    if found is None:
        raise BadInput(f"there is no module {where!r}, neither in this folder nor installed")
    with _user_code(where):
        return importlib.import_module(where)


def _imported_file(path: Path, attribute: str) -> ModuleType:
    if not path.is_file():
        raise BadInput(f"the file {str(path)!r} does not exist")
    path = path.absolute()
    _search_first(str(path.parent))  # as when it is run as a script
    with _user_code(str(path), _about_relative_import(path, attribute)):
        if _is_found_by_name(path):  # by its name, workers find it too
            return importlib.import_module(path.stem)
        return _under_another_name(path)


def _about_relative_import(path: Path, attribute: str) -> Callable[[BaseException], str]:
    """Return a function from an error to its end: how to name a file that belongs to a package."""

    def end(error: BaseException) -> str:
        if not (isinstance(error, ImportError) and "no known parent package" in str(error)):
            return ""
        root = path.parent
        while (root / "__init__.py").exists():
            root = root.parent
        here = Path.cwd()
        if root == path.parent:  # a package without __init__.py
            is_below = path.is_relative_to(here) and path.parent != here
            root = here if is_below else root.parent
        module = ".".join(path.relative_to(root).with_suffix("").parts)
        where = "" if root == here else f", in the folder {_relative(str(root))}"
        name = quote(f"{module}:{attribute}")
        return f"; the file belongs to a package, so name its module: {name}{where}"

    return end


def _search_first(folder: str) -> None:
    if folder not in sys.path:
        sys.path.insert(0, folder)


def _is_found_by_name(path: Path) -> bool:
    if not path.stem.isidentifier() or path.stem in sys.modules:
        return getattr(sys.modules.get(path.stem), "__file__", None) == str(path)
    found = importlib.util.find_spec(path.stem)
    return found is not None and found.origin == str(path)


def _under_another_name(path: Path) -> ModuleType:
    """Import a file whose name belongs to another module; its functions are sent by value."""
    import cloudpickle

    name = f"_flowdsl_target_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    cloudpickle.register_pickle_by_value(module)
    spec.loader.exec_module(module)
    return module


@contextmanager
def _user_code(
    name: str, about: Callable[[BaseException], str] = lambda error: ""
) -> Iterator[None]:
    """Report an exception of the user's code; ``about`` says what to do about it."""
    try:
        yield
    except (Exception, SystemExit) as error:
        raise _failed(error, name, about(error)) from error


def _failed(error: BaseException, name: str, advice: str = "") -> BadInput:
    """Return the error for an exception in the user's module, with the line that raised it."""
    return BadInput(f"{_location(error, name)}: {_reason(error)}{advice}")


def _reason(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return f"{error.msg}: {(error.text or '').strip()}"
    if isinstance(error, ModuleNotFoundError) and error.name and "pip install" not in str(error):
        return f"{error.name} is not installed: pip install {error.name.partition('.')[0]}"
    return f"{type(error).__name__}: {error}"


def _location(error: BaseException, name: str) -> str:
    """Return where the user's module failed: its last line on the stack."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{_relative(error.filename)}, line {error.lineno}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_users(frame)]
    if not frames:
        return name
    last = frames[-1]
    line = f" ({last.line})" if last.line else ""
    return f"{_relative(last.filename)}, line {last.lineno}{line}"


_NOT_USERS = str(Path(__file__).parents[1]), str(Path(os.__file__).parent)
"""The folders of flowdsl and of the standard library."""


def _is_users(frame: traceback.FrameSummary) -> bool:
    generated = frame.filename.startswith("<")  # "<frozen importlib._bootstrap>"
    return not (
        generated or "site-packages" in frame.filename or frame.filename.startswith(_NOT_USERS)
    )


def _relative(file: str) -> str:
    try:
        return os.path.relpath(file) if Path(file).is_relative_to(os.getcwd()) else file
    except OSError:  # the working folder was removed
        return file


def _attribute(module: ModuleType, path: str, listed: Callable[[ModuleType], str]) -> Any:
    value: Any = module
    for name in path.split("."):
        try:
            value = getattr(value, name)
        except AttributeError:
            raise BadInput(f"{_name(module)} has no {path!r}{listed(module)}") from None
        except Exception as error:  # a property of the user's
            raise _failed(error, _name(module)) from error
    return value


def _called(module: ModuleType, path: str, function: Callable[..., Any]) -> Any:
    try:
        inspect.signature(function).bind()
    except TypeError as error:
        raise BadInput(
            f"{path!r} in {_name(module)} cannot be called without arguments: {error}; give its "
            f"parameters defaults, or name a flow"
        ) from None
    except ValueError:  # a builtin has no signature
        pass
    with _user_code(f"{path}()"):
        return function()


def _classes_listed(module: ModuleType) -> str:
    """Return the end of an error message: the classes of a module."""
    values = vars(module).items()
    names = [name for name, value in values if isinstance(value, type) and _is_own(module, value)]
    if not names:
        return f"; {_name(module)} has no classes"
    return f"; the classes of {_name(module)} are {', '.join(names)}"


def _flows_listed(module: ModuleType) -> str:
    """Return the end of an error message: the flows of a module."""
    names = [name for name, value in vars(module).items() if _is_target(module, value)]
    if not names:
        functions = [name for name, value in vars(module).items() if _is_maker(value, module)]
        more = f"; one of its functions may make one: {', '.join(functions)}" if functions else ""
        return f"; {_name(module)} has no flows{more}"
    return f"; the flows of {_name(module)} are {', '.join(names)}"


def _is_target(module: ModuleType, value: object) -> bool:
    if isinstance(value, FlowBase):
        return True
    return _is_maker(value, module) and "Flow[" in str(value.__annotations__.get("return", ""))


def _is_maker(value: object, module: ModuleType) -> TypeIs[FunctionType]:
    """Return True for a function of the module itself that can be called without arguments."""
    if not inspect.isfunction(value) or not _is_own(module, value):
        return False
    try:
        inspect.signature(value).bind()
    except TypeError:
        return False
    return True


def _is_own(module: ModuleType, value: type | FunctionType) -> bool:
    """Return True if a class or function was defined in the module, and not imported."""
    return value.__module__ == module.__name__


def _name(module: ModuleType) -> str:
    file = getattr(module, "__file__", None)
    return module.__name__ if file is None else _relative(file)
