from support.clusters import source, target

__all__ = ["source", "target"]
