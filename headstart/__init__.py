"""headstart: one shared model that gives every client a head start.

Personalized federated learning by meta-learning: the published algorithms, a simulator that runs whole rounds
as one compiled program, experiments, and a record that resumes bit for bit.

What there is, and where it comes from, is listed in the stub file beside this one; nothing is imported before it is
used, so that the command line starts at once and JAX can still be told about its devices.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
