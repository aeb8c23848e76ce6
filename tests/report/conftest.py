"""What tests of pages have in common."""

OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
