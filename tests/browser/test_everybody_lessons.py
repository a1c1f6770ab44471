"""The pages of the lessons and of the second model family, for everybody as all others are."""

import pytest

from .conftest import Open, Site
from .kinds import PAGES, SECOND, look

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("kind", [kind for kind in PAGES if kind.startswith(SECOND)])
def test_a_page_is_for_everybody(open_tab: Open, site: Site, kind: str) -> None:
    look(open_tab, site, kind)
