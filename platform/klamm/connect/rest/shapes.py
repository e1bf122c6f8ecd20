"""The JSON of requests and answers, as types. The OpenAPI document is made of them; tests compare answers with it."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, TypedDict

ConnectorType = Literal["source", "sink", "unknown"]
ConnectorState = Literal["UNASSIGNED", "RUNNING", "PAUSED", "STOPPED", "FAILED", "RESTARTING"]
TargetName = Literal["RUNNING", "PAUSED", "STOPPED"]
Config = Annotated[dict[str, str], "Settings of a connector by their names."]
ConfigGiven = Annotated[
    dict[str, str | int | float | bool | None],
    "Settings by their names; numbers and booleans count as their text.",
]


Warnings = Annotated[
    list[str],
    "Sentences about settings that have no effect or that nobody knows. Not there when a configuration has none.",
]


class Error(TypedDict):
    """The body of every error: all answers from 400 on."""

    error_code: Annotated[int, "The HTTP status."]
    message: Annotated[str, "A sentence that says what is wrong and where."]
    warnings: NotRequired[Warnings]


class Server(TypedDict):
    """The worker."""

    version: str
    commit: str
    kafka_cluster_id: Annotated[str | None, "Null until the broker has answered."]


class Health(TypedDict):
    """The worker's health."""

    status: Literal["healthy", "starting", "unhealthy"]
    message: str


class TaskName(TypedDict):
    """The name of a task."""

    connector: str
    task: int


class ConnectorInfo(TypedDict):
    """A connector and its tasks."""

    name: str
    config: Config
    tasks: list[TaskName]
    type: ConnectorType
    warnings: NotRequired[Warnings]


class TaskInfo(TypedDict):
    """A task and its settings."""

    id: TaskName
    config: dict[str, str]


class Restart(TypedDict):
    """The restart policy's decision after the last failure."""

    error: Annotated[
        str, "Its class: retriable, connect, unknown, crash, hang, memory, data, config or lost."
    ]
    failed_ms: Annotated[int, "When it failed, epoch ms."]
    attempt: Annotated[int, "The number of the next restart since it was last healthy; 0: none follows."]
    next_try_ms: NotRequired[Annotated[int, "When this restart is due, or was, epoch ms."]]
    left: Annotated[int, "Restarts that are left of the budget."]
    budget: Annotated[int, "Restarts within the window (task.restart.max)."]
    window_ms: Annotated[int, "within this time (task.restart.window.ms)."]
    why: NotRequired[Annotated[str, "Why it is not restarted."]]


class ConnectorStateInfo(TypedDict):
    """The state of the connector itself."""

    state: ConnectorState
    worker_id: str
    version: NotRequired[Annotated[str | None, "The plugin's version."]]
    trace: NotRequired[Annotated[str, "What failed."]]
    restart: NotRequired[Restart]


class Progress(TypedDict):
    """A task's progress."""

    records: Annotated[int, "Records acknowledged since the task started."]
    last_ack_ms: Annotated[int | None, "When the last record was acknowledged, epoch ms."]
    lag: Annotated[int | None, "Records (a sink) or bytes (the file source) behind; null when unknown."]
    waiting_for: Annotated[
        str | None, "What a task that does not move waits for: input, broker, target, paused, …"
    ]
    details: NotRequired[
        Annotated[
            dict[str, Any],
            "Further figures of the task. retrying: by stage (put, poll, flush, …) the error of what is tried again, "
            "since_ms and attempts.",
        ]
    ]


class TaskState(TypedDict):
    """The state of a task."""

    id: int
    state: ConnectorState
    worker_id: str
    version: NotRequired[str | None]
    trace: NotRequired[str]
    progress: NotRequired[Progress]
    restart: NotRequired[Restart]


class ConnectorStatus(TypedDict):
    """States of a connector and its tasks."""

    name: str
    note: NotRequired[
        Annotated[str, "Why the states may be old: the worker has lost contact with its group."]
    ]
    connector: ConnectorStateInfo
    tasks: list[TaskState]
    type: ConnectorType


class Expanded(TypedDict, total=False):
    """The requested parts of one connector's description."""

    info: ConnectorInfo
    status: ConnectorStatus


class CreateConnector(TypedDict):
    """A connector to create."""

    name: NotRequired[Annotated[str | None, "Optional when the config has it."]]
    config: ConfigGiven
    initial_state: NotRequired[Annotated[TargetName | None, "RUNNING by default."]]


class Offset(TypedDict):
    """A source partition, or {kafka_topic, kafka_partition}, and the offset in it."""

    partition: NotRequired[dict[str, Any] | None]
    offset: NotRequired[Annotated[dict[str, Any] | None, "Null resets it. A sink's is {kafka_offset}."]]


class Offsets(TypedDict):
    """A connector's offsets."""

    offsets: list[Offset]


class Signal(TypedDict):
    """A signal to a running task. The plugin defines the types and their data."""

    type: str
    data: NotRequired[dict[str, Any]]
    id: NotRequired[Annotated[str, "For the log; made up where it is missing."]]


class Message(TypedDict):
    """A sentence that says what was done."""

    message: str


class Topics(TypedDict):
    """The topics that a connector has used."""

    topics: list[str]


PluginRow = TypedDict("PluginRow", {"class": str, "type": str, "version": str | None})
PluginRow.__doc__ = "An installed plugin class."


class ListedPlugin(PluginRow):
    """An installed plugin class, and the plugin package that has it."""

    package: NotRequired[
        Annotated[str, "NAME==VERSION; absent for a plugin of the worker's own environment."]
    ]


class ConfigKeyInfo(TypedDict):
    """A setting that a plugin takes."""

    name: str
    type: str
    required: bool
    default_value: str | None
    importance: str
    documentation: str
    group: str | None
    order_in_group: int
    width: str
    display_name: str
    dependents: list[str]
    order: NotRequired[int]


class ConfigValueInfo(TypedDict):
    """The value of a setting, and its errors."""

    name: str
    value: str | None
    recommended_values: list[str | None]
    errors: list[str]
    visible: bool


class ConfigInfo(TypedDict):
    """A setting with its value."""

    definition: ConfigKeyInfo | None
    value: ConfigValueInfo


class ConfigInfos(TypedDict):
    """The result of checking a configuration."""

    name: str
    error_count: int
    groups: list[str]
    configs: list[ConfigInfo]
    warnings: NotRequired[Warnings]


class LoggerLevel(TypedDict):
    """A logger's level, and when it was set here (epoch ms)."""

    level: str | None
    last_modified: int | None


class SetLevel(TypedDict):
    """A level to set."""

    level: Literal["TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL", "OFF"]


class TaskProgress(TypedDict):
    """A task's progress in one flat row."""

    id: int
    state: ConnectorState
    worker_id: str
    records: int | None
    bytes: Annotated[
        int | None, "Bytes acknowledged since the task started; null when it does not count them."
    ]
    lag: int | None
    last_ack_ms: int | None
    idle_ms: Annotated[int | None, "Time since the last acknowledgement, ms."]
    waiting_for: str | None
    details: dict[str, Any]


class ProgressTotal(TypedDict):
    """The sums over all tasks. A figure that one running task does not know is null."""

    records: int | None
    bytes: int | None
    lag: int | None
    last_ack_ms: int | None


class ConnectorProgress(TypedDict):
    """A connector's progress."""

    name: str
    type: ConnectorType
    state: ConnectorState
    at_ms: Annotated[int, "The time of this answer, epoch ms."]
    tasks: list[TaskProgress]
    total: ProgressTotal


class SampleRecord(TypedDict):
    """A record to try: for a sink as it is in the topic, for a source as its task returns it."""

    topic: NotRequired[Annotated[str, "Default: the first of `topics`, or `topic`, of the config."]]
    partition: NotRequired[int | None]
    offset: NotRequired[Annotated[int, "For a sink's record."]]
    timestamp: NotRequired[Annotated[int | None, "Epoch ms."]]
    key: NotRequired[Annotated[Any, 'Of a sink: text, JSON, or {"base64": …}. Of a source: a value.']]
    value: NotRequired[Any]
    key_schema: NotRequired[Annotated[Any, "For a source: a schema as JsonConverter writes it."]]
    value_schema: NotRequired[Any]
    headers: NotRequired[Annotated[dict[str, Any], "By name."]]


class DryRun(TypedDict):
    """Records to send through a connector's converters and transforms; nothing is read or written."""

    records: list[SampleRecord]
    config: NotRequired[Annotated[ConfigGiven, "Instead of the connector's own, which need not exist then."]]


class DryRunRecord(TypedDict):
    """A record after one step."""

    topic: str
    partition: int | None
    timestamp: int | None
    key: Any
    value: Any
    key_schema: Any
    value_schema: Any
    headers: list[dict[str, Any]]


class DryRunStep(TypedDict):
    """One step of a record through the chain."""

    step: Annotated[str, "converter, a transform's alias, or the converters at the end of a source's way."]
    plugin: Annotated[str, "Its class."]
    applied: Annotated[bool, "Whether its predicate chose the record."]
    record: DryRunRecord | None
    changed: bool
    error: str | None


class DryRunResult(TypedDict):
    """The steps and the end of one record."""

    outcome: Literal["delivered", "dropped", "failed"]
    steps: list[DryRunStep]


class DryRunAnswer(TypedDict):
    """The results of all records."""

    connector: str
    type: ConnectorType
    results: list[DryRunResult]


class InstallPlugin(TypedDict):
    """A plugin package to install: `package`, or a wheel that is uploaded."""

    package: NotRequired[
        Annotated[str, "As for pip: name==1.2, or the path of a wheel or a folder on the worker."]
    ]
    file: NotRequired[Annotated[str, "An uploaded wheel's file name."]]
    wheel: NotRequired[Annotated[str, "An uploaded wheel, base64."]]


class BrokenPlugin(TypedDict):
    """A plugin that cannot be used, and why."""

    name: str
    error: str
    trace: str


class PluginPackage(TypedDict):
    """An installed plugin package."""

    name: str
    version: str
    request: Annotated[str, "The package as it was requested."]
    state: Literal["ready", "broken", "building", "failed"]
    error: str | None
    plugins: list[PluginRow]
    broken: list[BrokenPlugin]
    packages: Annotated[list[str], "The locked versions of all its packages."]
    environment: Annotated[str, "Its environment; empty for the worker's own."]


class WorkerHas(TypedDict):
    """The state of a package on a worker of the group."""

    worker: Annotated[str, "Its URL."]
    state: Literal["ready", "broken", "building", "failed", "unknown"]
    error: str | None


class NewPluginPackage(PluginPackage):
    """A plugin package that has just been installed."""

    warnings: list[str]
    workers: list[WorkerHas]
