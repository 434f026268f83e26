# Sections of a report: a query and its table, from the lake at $home. Sourced by the scripts beside it.

# shellcheck disable=SC2034  # used by those scripts
environment="select property, identity_json->>property as value
from (select identity_json, unnest(json_keys(identity_json)) as property from environment)
order by property"

ask() { dice --home "$home" query --markdown "$1"; }
section() { printf '\n## %s\n\n```sql\n%s\n```\n\n' "$1" "$2"; ask "$2"; }
