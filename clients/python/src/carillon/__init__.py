"""Client of Carillon, a timer service. Client makes calls, Receiver receives them."""

from . import types
from .calls import Cancel, Request, path
from .client import Client
from .errors import Error, NeverSent, Problem, Unanswered
from .events import Event, Events
from .leaders import shard_of
from .receiver import (
    CloudEvent,
    Delivery,
    Fences,
    FenceStore,
    Handler,
    ManyHandler,
    Receiver,
    Refusal,
    RetryAfter,
    Stop,
    new_secret,
)

__all__ = [
    "Cancel", "Client", "CloudEvent", "Delivery", "Error", "Event", "Events", "FenceStore", "Fences", "Handler", "ManyHandler", "NeverSent",
    "Problem", "Receiver", "Refusal", "Request", "RetryAfter", "Stop", "Unanswered", "new_secret", "path", "shard_of", "types",
]
