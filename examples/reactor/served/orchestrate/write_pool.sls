# The template is rendered here, and the proxies get the lines of the whole file.
{% set pool %}{% include 'haproxy/pool.cfg' %}{% endset %}
write_pool:
  salt.function:
    - name: file.write
    - tgt: 'haproxy*'
    - arg:
      - /var/tmp/pool.cfg
    - kwarg:
        args: {{ pool.strip().splitlines()|json }}
