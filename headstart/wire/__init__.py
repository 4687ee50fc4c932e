"""What happens to clients' updates on their way to the server: clip, noise, compress, aggregate."""

from headstart.wire.build import AGGREGATORS, CLIPS, COMPRESSIONS, NOISES, wire
from headstart.wire.chain import Wire, check_wire
from headstart.wire.clip import AdaptiveClip, Clip, Clipping
from headstart.wire.compress import Code, Compress, Compression, Quantize, TopK
from headstart.wire.noise import GaussianMechanism, Noise
from headstart.wire.part import Aggregator, Sent, WirePart
from headstart.wire.payload import Payload
from headstart.wire.privacy import PrivacySpent, default_delta, epsilon_of, noise_for, privacy_spent
from headstart.wire.robust import CoordinateMedian, Krum, TrimmedMean

__all__ = [
    "AGGREGATORS",
    "CLIPS",
    "COMPRESSIONS",
    "NOISES",
    "AdaptiveClip",
    "Aggregator",
    "Clip",
    "Clipping",
    "Code",
    "Compress",
    "Compression",
    "CoordinateMedian",
    "GaussianMechanism",
    "Krum",
    "Noise",
    "Payload",
    "PrivacySpent",
    "Quantize",
    "Sent",
    "TopK",
    "TrimmedMean",
    "Wire",
    "WirePart",
    "check_wire",
    "default_delta",
    "epsilon_of",
    "noise_for",
    "privacy_spent",
    "wire",
]
