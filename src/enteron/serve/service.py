"""What every answer is made from."""

from dataclasses import dataclass
from pathlib import Path

from enteron.review.store import REVIEWS, ReviewStore
from enteron.serve.access import Access
from enteron.serve.catalogue import Catalogue
from enteron.serve.opened import OpenedReadings


@dataclass
class Service:
    """A folder of readings, their reviews, and who may see them."""

    catalogue: Catalogue
    readings: OpenedReadings
    store: ReviewStore
    access: Access

    @classmethod
    def open(
        cls,
        root: Path,
        access: Access,
        *,
        studies: Path | None = None,
        device_text: bool = False,
    ) -> "Service":
        """The service of a folder of readings."""
        catalogue = Catalogue(root, studies)
        readings = OpenedReadings(catalogue, device_text=device_text)
        return cls(catalogue, readings, ReviewStore(catalogue.root / REVIEWS), access)

    def close(self) -> None:
        """End background work and close files."""
        self.readings.close()
        self.store.close()
