"""Files of users as rows of numbers: readers of six formats, and a preprocessing that is fitted on both domains."""
