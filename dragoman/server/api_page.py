"""The page at /docs: the OpenAPI description for people, without a script and without other hosts."""

from __future__ import annotations

from typing import Any

from jinja2 import Environment

_PAGE = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string("""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ spec.info.title }}: the API</title>
<link rel="icon" href="icon.svg">
<link rel="stylesheet" href="words.css">
<link rel="stylesheet" href="style.css">
</head>
<body class="api">
<h1>The API</h1>
<p>As OpenAPI: <a href="openapi.json">openapi.json</a>. <a href="./">Translate on the page</a>.</p>
{% for path, operations in spec.paths.items() %}
{% for method, operation in operations.items() %}
<section>
<h2><code>{{ method|upper }} {{ path }}</code></h2>
<p>{{ operation.description }}</p>
{% for type, content in operation.get("requestBody", {}).get("content", {}).items() %}
{% for schema in content.schema.get("anyOf", [content.schema]) %}
<div class="scroll" tabindex="0" role="region" aria-label="Fields of {{ path }}">
<table>
<caption>{{ schema.description or type }}</caption>
<tr><th scope="col">field</th><th scope="col">meaning</th></tr>
{% for name, field in schema.properties.items() %}
<tr><td><code>{{ name }}</code></td><td>{{ field.description or field.title }}</td></tr>
{% endfor %}
</table>
</div>
{% endfor %}
{% endfor %}
<ul>
{% for status, answer in operation.responses.items() %}
<li><code>{{ status }}</code> {{ answer.description }}</li>
{% endfor %}
</ul>
</section>
{% endfor %}
{% endfor %}
</body>
</html>
""")


def api_page(spec: dict[str, Any]) -> str:
    """The page of a description."""
    return _PAGE.render(spec=spec)
