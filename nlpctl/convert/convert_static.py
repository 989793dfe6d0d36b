"""`nlpctl convert-static`: parameters of a static graph become a model folder."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nlpctl.config.hub_names import PYTHON_PREFIX
from nlpctl.config.recipe_of import recipe_of
from nlpctl.config.schema import RuntimeSection
from nlpctl.errors import Problem, RunFailed, UserError
from nlpctl.files import write_text_atomic, writing
from nlpctl.models.model_manifest import refuse_model_folder
from nlpctl.names import and_more
from nlpctl.outputs import refuse_output
from nlpctl.report.language import later
from nlpctl.runtime.interrupt import sigterm_interrupts
from nlpctl.runtime.lock import sole_writer
from nlpctl.runtime.process import configure_paddle, prepare_process, quiet_import, quiet_libraries

if TYPE_CHECKING:
    from nlpctl.convert.conversion import Conversion
    from nlpctl.convert.maps import NameMap
    from nlpctl.convert.match import TargetParameter
    from nlpctl.convert.proof import Proof
    from nlpctl.convert.report import ConversionReport
    from nlpctl.convert.targets import Target

AUTO = "auto"
_SEED = 42


class ConversionFailed(RunFailed):
    """The conversion is incomplete, or the outputs differ; nothing was written. `report` holds the details."""

    def __init__(self, report: ConversionReport, problems: Sequence[Problem]):
        super().__init__(problems=problems)
        self.report = report


class ConversionAmbiguous(UserError):
    """A parameter has several candidates and the user must choose; nothing was written. `report` holds the details."""

    def __init__(self, report: ConversionReport, problems: Sequence[Problem]):
        super().__init__(problems=problems)
        self.report = report


@dataclass(frozen=True)
class ConversionRequest:
    """The arguments of a conversion.

    `to`: see convert/targets.py. `class_name`: the network's class, if `to` names another one or none. `config`:
    values that override its own. `map_name`: "auto", a built-in map, or a map file. `labels`, `vocabulary`: files for
    what `to` does not define. `allow_missing`: patterns of parameters that may stay newly initialised.
    """

    source: str
    to: str
    class_name: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    map_name: str = AUTO
    labels: Path | None = None
    vocabulary: Path | None = None
    allow_missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class Converted:
    """`task`: the task that the folder can be used for now; None: it needs training. `usable`: it has a vocabulary."""

    report: ConversionReport
    output: Path
    task: str | None
    usable: bool


def convert_static(request: ConversionRequest, output: Path, *, overwrite: bool = False) -> Converted:
    """Convert as `request` says and write a model folder to `output`.

    UserError: an input is wrong. ConversionAmbiguous, ConversionFailed: the source does not determine the network, or
    their outputs differ. Nothing is written then.
    """
    _prepare()
    from nlpctl.convert.conversion import fill
    from nlpctl.convert.model_folder import write_folder
    from nlpctl.convert.report import make_report

    template = Path(request.to) if Path(request.to).is_dir() else None
    inputs = [_source_path(request.source), template, request.labels, request.vocabulary]
    with sigterm_interrupts(), sole_writer(output):
        refuse_model_folder(output, overwrite, [path for path in inputs if path is not None])
        conversion = _match_parameters(request)
        _check_complete(conversion, make_report(conversion, None))
        fill(conversion)
        conversion = _without_strange_calibration(conversion, request)
        proof = _prove(conversion)
        report = make_report(conversion, proof)
        if proof.fails:
            problem = Problem(
                f"the static program and the converted network differ by {proof.difference:.3g} on the same inputs",
                hint="a variable is matched to the wrong parameter, or the config differs (hidden_act, layer norm): "
                "compare @[plan] with the program, and correct the map or @[to]",
            )
            raise ConversionFailed(report, [problem])
        description = write_folder(output, conversion, report)
    task = description.task if description is not None and description.trained else None
    return Converted(report, output, task, conversion.target.tokenizer is not None)


def plan_static(request: ConversionRequest, map_file: Path, *, overwrite: bool = False) -> ConversionReport:
    """A dry run of `convert_static`, also where it would fail; writes only the map `map_file`."""
    refuse_output(map_file, overwrite, exists="this exists already", elsewhere="name another file: @[output=FILE.yaml]")
    _prepare()
    from nlpctl.convert.report import make_report, plan_text

    with sigterm_interrupts():
        report = make_report(_match_parameters(request), None)
    with writing(map_file, "name another place: @[output=FILE.yaml]"):
        write_text_atomic(map_file, plan_text(report))
    return report


def _prepare() -> None:
    """On the CPU: outputs must match exactly, and nothing here is large."""
    configure_paddle(prepare_process(RuntimeSection(device="cpu"), _SEED), _SEED)
    with quiet_import():
        import paddlenlp  # noqa: F401 (so that it can be made quiet)
    quiet_libraries()


def _match_parameters(request: ConversionRequest) -> Conversion:
    """Read the source, find the target network, and match one to the other; no value is set yet."""
    from nlpctl.convert.conversion import plan
    from nlpctl.convert.lexical import NAME as LAC
    from nlpctl.convert.lexical import lexical_analyser
    from nlpctl.convert.source import read_static
    from nlpctl.convert.targets import find_target, target_folder

    source = read_static(_source_path(request.source))
    if request.to == LAC:
        _refuse_beside_lac(request)
        analyser = lexical_analyser(source.variables, source.source, request.vocabulary)
        source = dataclasses.replace(source, notes=(*source.notes, *analyser.describe()))
        target = analyser.target
    else:
        folder = target_folder(request.to) if request.class_name is None else None
        target = find_target(request.to, request.class_name, None if folder is None else recipe_of(folder))
        target = _with_files(target, request.labels, request.vocabulary)
    return plan(source, target, _maps(request.map_name, target), request.config, request.allow_missing)


def _refuse_beside_lac(request: ConversionRequest) -> None:
    """UserError: the request sets what LAC's own files define."""
    given = {"@[class]": request.class_name, "@[labels]": request.labels, "@[config]": request.config}
    problems = [
        Problem("does not apply to lac", flag, "leave it out: lac is defined by its variables and dictionaries")
        for flag, value in given.items()
        if value
    ]
    if problems:
        raise UserError(problems=problems)


def _without_strange_calibration(conversion: Conversion, request: ConversionRequest) -> Conversion:
    """`conversion` without calibration and thresholds of the target where these were fitted to another network."""
    from nlpctl.convert.conversion import has_weights_of
    from nlpctl.convert.targets import target_folder

    target, matching = conversion.target, conversion.matching
    if target.description is None or (target.description.calibration, target.description.thresholds) == (None, None):
        return conversion
    changed = request.config or request.vocabulary
    if not changed and (not conversion.fresh or _have_no_effect(conversion, conversion.fresh)):
        folder = target_folder(request.to)
        assert folder is not None  # since it has a description
        if has_weights_of(conversion, folder):
            return conversion
    description = dataclasses.replace(target.description, calibration=None, thresholds=None)
    note = later(
        "this is not known to be the network of {}: its calibration and thresholds are left out, and probabilities "
        "are not calibrated",
        target.name,
    )
    return dataclasses.replace(
        conversion,
        target=dataclasses.replace(target, description=description),
        matching=dataclasses.replace(matching, notes=(*matching.notes, note)),
    )


def _prove(conversion: Conversion) -> Proof:
    """Run the source and the filled network on the same inputs, as far as the source can be run."""
    from nlpctl.convert.lexical import is_lexical, prove_lexical
    from nlpctl.convert.proof import Proof, prove

    source = conversion.source
    if conversion.fresh and not _have_no_effect(conversion, conversion.fresh):
        return Proof(False, "some parameters are newly initialised, so the outputs cannot be equal")
    if source.program is None and is_lexical(source.variables):
        return prove_lexical(source.variables, conversion.network)
    return prove(source, conversion.network)


def _have_no_effect(conversion: Conversion, parameters: Sequence[TargetParameter]) -> bool:
    """Whether no output depends on any of `parameters`; False also if that is unknown."""
    from nlpctl.convert.graph import NotTraceable, without_effect

    try:
        return {each.internal for each in parameters} <= without_effect(conversion.network)
    except NotTraceable:
        return False


def _source_path(source: str) -> Path:
    from nlpctl.models.source import package_folder

    return package_folder(source) if source.startswith(PYTHON_PREFIX) else Path(source).expanduser()


def _with_files(target: Target, labels: Path | None, vocabulary: Path | None) -> Target:
    """`target` with the labels and the vocabulary of the request."""
    from nlpctl.convert.targets import tokenizer_from
    from nlpctl.data.rows.labels import LabelSet

    if labels is not None:
        if not target.head.labelled:
            raise UserError("this network has no labels", "@[labels]", "leave it out, or name another @[class]")
        names = tuple(LabelSet.from_file(labels).names)
        description = target.description and dataclasses.replace(
            target.description, labels=names, thresholds=None, calibration=None
        )
        target = dataclasses.replace(target, labels=names, labels_known=True, description=description)
    if vocabulary is not None:
        target = dataclasses.replace(target, tokenizer=tokenizer_from(vocabulary, target.family))
    return target


def _maps(name: str, target: Target) -> list[NameMap]:
    """The user's map before the built-in ones; a built-in map that is named is used alone."""
    from nlpctl.convert.maps import built_in_map, built_in_maps_for, read_map

    if name == AUTO:
        return built_in_maps_for(target.family.model_type)
    if name.endswith((".yaml", ".yml")) or "/" in name:
        return [read_map(Path(name).expanduser()), *built_in_maps_for(target.family.model_type)]
    return [built_in_map(name)]


def _check_complete(conversion: Conversion, report: ConversionReport) -> None:
    """ConversionAmbiguous, ConversionFailed: a parameter has no value, or more than one."""
    if report.ambiguous:
        first = report.ambiguous[0]
        parameters = and_more([row.parameter for row in report.ambiguous])
        message = f"{parameters}: {first.reason} ({and_more(first.candidates)})"
        hint = "choose in a map: @[plan] writes one to be edited, @[map=FILE.yaml] uses it"
        raise ConversionAmbiguous(report, [Problem(message, where=report.source, hint=hint)])
    lacking = [*report.missing, *report.mismatched]
    if not lacking:
        return
    first = lacking[0]
    message = f"{len(lacking)} of {report.parameters} parameters have no value: {first.parameter}"
    if first.reason:
        message += f" ({first.reason})"
    if len(lacking) > 1:
        message += f" and {len(lacking) - 1} more"
    if _have_no_effect(conversion, conversion.lacking):
        stem = os.path.commonprefix([f"{each.name}." for each in conversion.lacking]).rpartition(".")[0]
        hint = f"no output of this network depends on them, so an export lacks them: @[allow-missing={stem}]"
    else:
        hint = "@[plan] writes a map to be edited; @[allow-missing=PATTERN] names what may be new, such as classifier"
    raise ConversionFailed(report, [Problem(message, where=report.source, hint=hint)])
