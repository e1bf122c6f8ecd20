"""What plugin authors and users of Klamm test with: public API, kept stable."""

from klamm.testing.broker import BrokerFailed, EmbeddedBroker

__all__ = ["BrokerFailed", "EmbeddedBroker"]
