"""The connectors that come with Klamm, registered as a third party's would be.

Each connector is a folder with the same files:

- `connector.py`: the connector class. It imports neither the task nor its libraries until `task_class` is called.
- `config.py`: `config_def()` returns the configuration keys; `parse(props)` returns them as one frozen dataclass, or
  raises ConfigError. It is the module's `Settings`; Spark's connectors use a `Job`, LogTail the log agent's `Input`.
- `task.py`: the task class.

A package with a source and a sink has a folder `source/` and a folder `sink/` with these files. Two connectors that
share keys and task (MySQL, MariaDB) share a folder. The package's `__init__.py` registers its connectors.
"""
