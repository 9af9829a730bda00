"""What a notebook shows: items with verdicts, and the review of them.

page.py      what views are made of: escaped texts, pictures, rubrics
items.py     an item with its verdict, a case, a contact sheet
reviewed.py  a case under review, and a whole review as one file
reviewer.py  the tool to review with: buttons and keys
"""

from vjudge.names import public
from vjudge.widgets.items import contact_sheet, show, show_case
from vjudge.widgets.page import View
from vjudge.widgets.reviewed import save_page
from vjudge.widgets.reviewer import Reviewer

__all__ = ["Reviewer", "View", "contact_sheet", "save_page", "show", "show_case"]

__dir__ = public(__name__)
