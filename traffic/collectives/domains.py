"""HB domains as the hierarchical algorithms want them."""

import numpy as np

from traffic.columns import Numbers
from traffic.errors import TrafficError
from traffic.layout import Layout


def equal_domains(layout: Layout, algorithm: str) -> Numbers:
    """(m, g) the ranks of each HB domain, those of one column a rail; without domains, every rank is one by itself.

    Raises TrafficError for domains of different sizes.
    """
    sizes = sorted({len(domain) for domain in layout.domains})
    if len(sizes) > 1:
        raise TrafficError(
            f"HB domains of {', '.join(map(str, sizes))} ranks: {algorithm} needs equally many in each; "
            "use as many ranks in every domain, or another algorithm"
        )
    return np.array(layout.domains or [(rank,) for rank in range(layout.n_ranks)], dtype=np.int64)
