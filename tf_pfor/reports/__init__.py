"""Reports about a map: `explain`, `check`, and the text, page and drawing that show them.

It may import `api` and the rooms below; `derivatives` and `frontends` may import it. No module
here changes a graph.
"""
