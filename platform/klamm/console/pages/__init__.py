"""The pages, one module for each part of the console. A handler returns HTML; `app.ROUTES` lists all."""
