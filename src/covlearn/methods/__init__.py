"""The methods of the paper's tables, by name."""

from covlearn.methods.base import Method, Run
from covlearn.methods.cal import CAL
from covlearn.methods.ce import CE
from covlearn.methods.cores import CORES
from covlearn.methods.coteaching import CoTeaching, CoTeachingPlus
from covlearn.methods.dmi import DMI
from covlearn.methods.forward import Forward
from covlearn.methods.gce import GCE
from covlearn.methods.jocor import JoCoR
from covlearn.methods.peer import Peer
from covlearn.methods.ptd import PTD
from covlearn.methods.reweight_r import ReweightR

METHODS: dict[str, type[Method]] = {
    "cal": CAL,
    "ce": CE,
    "cores": CORES,
    "coteaching": CoTeaching,
    "coteaching_plus": CoTeachingPlus,
    "dmi": DMI,
    "forward": Forward,
    "gce": GCE,
    "jocor": JoCoR,
    "peer": Peer,
    "ptd": PTD,
    "reweight_r": ReweightR,
}
"""Every method by the name that ``--method`` takes."""

__all__ = [
    "CAL",
    "CE",
    "CORES",
    "DMI",
    "GCE",
    "METHODS",
    "PTD",
    "CoTeaching",
    "CoTeachingPlus",
    "Forward",
    "JoCoR",
    "Method",
    "Peer",
    "ReweightR",
    "Run",
]
