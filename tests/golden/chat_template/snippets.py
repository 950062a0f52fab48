"""Template snippets, feature by feature, rendered with DATA. Where Python raises, we must fail
too."""

DATA = {
    "messages": [
        {"role": "system", "content": "sys"},
        {"role": "user", "content": "Hello, wörld"},
        {"role": "assistant", "content": "Hi", "tool_calls": [
            {"function": {"name": "f", "arguments": {"x": 1, "y": [1.5, None]}}}]},
        {"role": "user", "content": [{"type": "text", "text": "part"}, {"type": "image"}]},
    ],
    "names": ["bob", "Alice", "carol", "Dave", "alice"],
    "numbers": [3, 1, 2, 10, -4],
    "text": "  The quick brown fox — jumps 🦊 over\n\tthe lazy dog  ",
    "word": "straße İstanbul ǆ ΑΣ",
    "d": {"b": 1, "a": {"c": [1, 2, {"x": None}]}, "items": "shadow", "Z": True},
    "empty": [], "nothing": None, "yes": True, "no": False, "zero": 0, "pi": 3.14159,
    "html": "<a href=\"x\">'&'</a>",
}

PLAIN = {
    # -- white space
    "trim_blocks": "a\n{% if true %}\nb\n{% endif %}\nc\n",
    "lstrip_blocks": "a\n   {% if true %}   \n  b\n   {% endif %}\nc",
    "lstrip keeps text before": "x  {% if true %}y{% endif %}  z",
    "lstrip not for variables": "\n   {{ 1 }}\n   {# c #}\n   {{ 2 }}",
    "plus keeps indent": "a\n   {%+ if true %}b{% endif %}",
    "plus keeps line end": "{% if true +%}\nb{% endif +%}\nc",
    "minus both": "a  \n {%- if true -%} \n b \n {%- endif -%} \n c",
    "minus variables": "a \n {{- 1 -}} \n b {{- 2 }} c {{ 3 -}} d",
    "minus comment": "a \n {#- x -#} \n b{# y #}\nc",
    "unicode space is stripped": "a\u2003\xa0{{- 1 -}}\u3000\u2003b",
    "windows line ends": "a\r\n{% if true %}\r\nb\rc{% endif %}\r\n",
    "trailing newlines": "a\n\n\n",
    "only newline": "\n",
    "raw": "{% raw %}{{ x }} {% if %}{# #}{% endraw %}!",
    "raw trims": "a\n  {%- raw -%}\n  {{ x }}\n  {%- endraw -%}\n b",
    "raw newline": "{% raw %}\n a\n{% endraw %}\nb",
    "raw lstrip": "a\n  {% raw %}\n  b\n  {% endraw %}\n  c",
    "comment multi line": "a{# {{ x }} \n {% if %} #}b",
    "braces in text": "{ {a} } %} }} #} {",
    "end in brackets": "{{ {'a': {'b': 1}}['a']['b'] }}{{ {}}}",
    "tag in string": '{{ \'}}\' }}{{ "{% x %}" }}',
    # -- literals
    "escapes":
        '{{ \'a\\nb\\tc\\\\d\\\'e\\"f\\x41\\u00e9\\U0001F600\\101\\0\' }}{{ \'\\q\\é\\—\\🦊\' }}',
    "line continuation": "{{ 'a\\\nb' }}",
    "string concatenation": '{{ \'a\' \'b\' "c" }}',
    "integers": "{{ 0 }} {{ 00 }} {{ 1_000 }} {{ 0x1F }} {{ 0b101 }} {{ 0o17 }} {{ -5 }} {{ +5 }}",
    "floats":
        "{{ 1.0 }} {{ 1e3 }} {{ 1.5e-7 }} {{ 1_0.5 }} {{ 1e16 }} {{ 1e15 }} {{ 123456789.123 }}"
        " {{ 0.0001 }} {{ 0.00001 }} {{ -0.0 }} {{ 1e400 }} {{ 0.1 + 0.2 }} {{ 1e22 }}"
        " {{ 5e-324 }}",
    "constants": "{{ true }}{{ True }}{{ false }}{{ False }}{{ none }}{{ None }}",
    "collections":
        "{{ [1, 'a', 2.5, none, true, [], {}] }} {{ (1,) }} {{ () }} {{ (1, 'b') }}"
        " {{ {'a': 1, 2: 'b', none: [1,]} }}",
    "print tuple": "{{ 1, 2 }}",
    "repr quotes":
        '{{ ["it\'s", \'say "x"\', \'both \\\' and "\', \'back\\\\slash\', \'n\\nl\', '
        "'\\x00\\x7f\\x85', 'é🦊', '\\u200b\\u2028'] }}",
    # -- operators
    "arithmetic":
        "{{ 7 + 3 }} {{ 7 - 3 }} {{ 7 * 3 }} {{ 7 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }}"
        " {{ -7 % 3 }} {{ 7 % -3 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 4 / 2 }}",
    "float arithmetic":
        "{{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 7.5 % -2 }} {{ 1.5 + 1 }} {{ 2.0 ** 0.5 }}"
        " {{ 1 / 3 }}",
    "bool arithmetic":
        "{{ true + true }} {{ true * 3 }} {{ -true }} {{ true == 1 }} {{ true < 2 }}",
    "precedence":
        "{{ 1 + 2 * 3 }} {{ (1 + 2) * 3 }} {{ 2 ** 3 ** 2 }} {{ -2 ** 2 }} {{ 1 ~ (2 + 3) }}"
        " {{ not 1 == 2 }} {{ 'a' ~ 1 + 2 ~ 'b' }} {{ -1|abs }} {{ 1 - -1 }}",
    "concat": "{{ 'a' ~ 1 ~ none ~ true ~ 1.5 ~ [1] ~ undefined_thing }}",
    "string operators":
        "{{ 'ab' * 3 }} {{ 3 * 'ab' }} {{ 'a' + 'b' }} {{ 'ab' * -1 }}|{{ 'a' < 'b' }}",
    "list operators":
        "{{ [1] + [2] }} {{ [0] * 3 }} {{ (1,) + (2,) }} {{ [1, 2] < [1, 3] }}"
        " {{ [1] == (1,) }}",
    "comparison":
        "{{ 1 < 2 }} {{ 1 <= 1 }} {{ 2 > 3 }} {{ 1 != 1.0 }} {{ 'a' == 'a' }}"
        " {{ none == none }} {{ [1, {'a': 2}] == [1, {'a': 2.0}] }} {{ 1 == '1' }}",
    "chained comparison": "{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1 != 2 }}",
    "membership":
        "{{ 1 in [1, 2] }} {{ 'b' in 'abc' }} {{ 'role' in messages[0] }} {{ 5 not in [1] }}"
        " {{ 'x' in nope }} {{ '' in 'a' }} {{ 2 in (1, 2) }} {{ 3 in range(5) }}"
        " {{ not 'a' in 'b' }}",
    "logic":
        "{{ 1 and 2 }} {{ 0 and 2 }} {{ 0 or 'x' }} {{ '' or none }} {{ not [] }}"
        " {{ not not 5 }} {{ 1 if yes else 2 }} {{ 1 if no }}"
        "|{{ 1 if no else 2 if yes else 3 }}",
    "truth":
        "{% for x in [0, 1, '', 'a', [], [0], {}, {'a': 1}, none, 0.0, 0.1, (), nope] %}"
        "{{ 'T' if x else 'F' }}{% endfor %}",
    "percent format":
        "{{ '%s is %d, %05.2f %x %r %%' % ('a', 42, 3.14159, 255, 'q') }} {{ '%s' % 5 }}"
        " {{ '%-5s|%5s|%+d' % ('a', 'b', 3) }} {{ '%(a)s' % {'a': 1} }}",
    "percent format of a list": "{{ '%s' % [1, 2] }} {{ 'a' % [1] }}",
    # -- access
    "attributes":
        "{{ messages[1].role }} {{ messages[1]['content'] }} {{ messages.0.role }}"
        " {{ d.a.c[2].x }} {{ messages[-1].role }} {{ d.nope }}|{{ d['nope'] }}"
        "|{{ messages[99] }}|",
    "method wins over key": "{{ d['items'] }} {{ d.items() | length }} {{ d.Z }}",
    "string index": "{{ 'wörld'[1] }}{{ 'wörld'[-1] }}{{ 'abc'[9] }}|",
    "slices":
        "{{ 'wörld🦊x'[1:3] }} {{ 'abcdef'[::-1] }} {{ 'abcdef'[::2] }} {{ 'abcdef'[-3:] }}"
        " {{ 'abcdef'[4:1:-1] }} {{ 'añb'[::-1] }} {{ numbers[1:] }} {{ numbers[:-1] }}"
        " {{ numbers[::-2] }} {{ numbers[10:] }} {{ (1,2,3)[:2] }} {{ 'abc'[none:none] }}"
        " {{ 'abc'[-99:99] }} {{ range(10)[2:5] | list }}",
    "undefined prints nothing":
        "[{{ nope }}] [{{ nope | default('d') }}] [{{ nope is defined }}] [{{ nope | length }}]",
    "undefined loops": "{% for x in nope %}x{% else %}none{% endfor %}",
    "undefined in filters": "[{{ nope | last }}{{ nope | first }}{{ nope | reverse | list }}]",
    "unsafe attribute": "[{{ ''.__class__ }}]",
    # -- statements
    "if chain":
        "{% for x in [1, 2, 3] %}{% if x == 1 %}one{% elif x == 2 %}two{% else %}"
        "many{% endif %}{% endfor %}",
    "loop variables":
        "{% for x in 'abc' %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}"
        "{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}"
        "{{ loop.depth0 }}[{{ loop.previtem }}|{{ loop.nextitem }}]{{ loop.cycle('x', 'y') }}"
        " {% endfor %}",
    "loop changed": "{% for x in [1, 1, 2, 2, 1] %}{{ x if loop.changed(x) else '-' }}{% endfor %}",
    "loop filter":
        "{% for x in numbers if x > 1 %}{{ loop.index }}:{{ x }}/{{ loop.length }} {% else %}"
        "none{% endfor %}",
    "loop else":
        "{% for x in [] %}x{% else %}empty{% endfor %}{% for x in [1] if x > 5 %}x{% else %}"
        "all out{% endfor %}",
    "loop else after break": "{% for x in [1] %}a{% break %}{% else %}b{% endfor %}",
    "loop else after continue":
        "{% for x in [1, 2] %}{% if x == 1 %}{% continue %}{% endif %}a{% else %}b{% endfor %}"
        "{% for x in [1, 2] %}{% continue %}{% else %}c{% endfor %}",
    "loop unpack":
        "{% for k, v in {'a': 1, 'b': [2]}.items() %}{{ k }}={{ v }};{% endfor %}"
        "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "loop over dict": "{% for k in d %}{{ k }},{% endfor %}",
    "loop nested":
        "{% for a in [1, 2] %}{% for b in 'xy' %}{{ loop.index }}{{ a }}{{ b }} {% endfor %}"
        "{{ loop.index }}{% endfor %}",
    "loop recursive":
        "{% for n in [{'v': 1, 'c': [{'v': 2, 'c': [{'v': 3}]}]}, {'v': 4}] recursive %}"
        "{{ n.v }}@{{ loop.depth }}{% if n.c %}({{ loop(n.c) }}){% endif %}{% endfor %}",
    "break and continue":
        "{% for x in range(10) %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 5 %}"
        "{% break %}{% endif %}{{ x }}{% endfor %}",
    "loop scope":
        "{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = i * 10 %}{{ x }}{% endfor %}"
        "{{ x }}",
    "if has no scope": "{% if true %}{% set x = 5 %}{% endif %}{{ x }}",
    "namespace":
        "{% set ns = namespace(a=1, found=false) %}{% for i in [1, 2, 3] %}{% if i == 2 %}"
        "{% set ns.found = true %}{% set ns.a = ns.a + i %}{% endif %}{% endfor %}"
        "{{ ns.found }} {{ ns.a }} {{ ns['a'] }} {{ ns.nope }}|",
    "namespace of dict": "{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns.b }}",
    "set several": "{% set a, b = 1, 'x' %}{{ a }}{{ b }}{% set c = 1, 2 %}{{ c }}",
    "set block":
        "{% set x %}a {{ 1 + 1 }} b{% endset %}[{{ x }}]{% set y | upper | replace('B', 'c') %}"
        "a b{% endset %}[{{ y }}]",
    "with": "{% set a = 1 %}{% with a = 2, b = a %}{{ a }}{{ b }}{% endwith %}{{ a }}",
    "filter block": "{% filter upper | replace('L', 'x') %}hello {{ 'all' }}{% endfilter %}",
    "generation": "{% for m in [1, 2] %}{% generation %}<{{ m }}>{% endgeneration %}{% endfor %}",
    "macro":
        "{% macro m(a, b='B', c=a) %}{{ a }}{{ b }}{{ c }};{% endmacro %}{{ m(1) }}"
        "{{ m(1, 2) }}{{ m(1, c=3) }}{{ m(b=0, a=9) }}",
    "macro missing argument": "{% macro m(a) %}[{{ a }}|{{ a is defined }}]{% endmacro %}{{ m() }}",
    "macro varargs":
        "{% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, x=4) }}"
        "{{ m(1) }}",
    "macro star":
        "{% macro m(a, b, c) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(*[1, 2], **{'c': 3}) }}",
    "macro recursion":
        "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}",
    "macro sees globals late":
        "{% macro m() %}{{ x }}{% endmacro %}{% set x = 1 %}{{ m() }}{% set x = 2 %}{{ m() }}",
    "macro scope":
        "{% set x = 1 %}{% macro m() %}{% set x = 2 %}{{ x }}{% endmacro %}{{ m() }}{{ x }}",
    "macro attributes":
        "{% macro m(a, b=1) %}{% endmacro %}{{ m.name }} {{ m.arguments }} {{ m.catch_kwargs }}",
    "call block":
        "{% macro box(t) %}<{{ t }}>{{ caller() }}</{{ t }}>{% endmacro %}{% call box('b') %}"
        "in {{ yes }}{% endcall %}",
    "call block with arguments":
        "{% macro each(xs) %}{% for x in xs %}{{ caller(x, loop.index) }}{% endfor %}"
        "{% endmacro %}{% call(x, i) each('ab') %}{{ i }}{{ x }} {% endcall %}",
    "macro in loop":
        "{% for i in [1, 2] %}{% macro m() %}{{ i }}{{ loop.index }}{% endmacro %}{{ m() }}"
        "{% endfor %}",
    "print statement": "{% print 1 %}{% print 'a', 2 %}",
    "if with colon": "{% if true: %}x{% endif %}",
    # -- filters
    "trim": "[{{ text | trim }}] [{{ 'xxaxx' | trim('x') }}] [{{ 5 | trim }}]",
    "case filters":
        "{{ word | upper }} {{ word | lower }} {{ word | title }} {{ word | capitalize }}"
        " {{ 'hello-world (foo) [bar' | title }} {{ 'ÉCOLE' | lower }}"
        " {{ 'ŉ ﬁ ΌΣΟΣ Σ' | capitalize }}",
    "length":
        "{{ 'wörld🦊' | length }} {{ numbers | count }} {{ d | length }} {{ range(7) | length }}",
    "join":
        "{{ numbers | join(', ') }} {{ [1, none, 'a'] | join }}"
        " {{ messages[:2] | join('|', attribute='role') }} {{ 'abc' | join('-') }}",
    "first and last":
        "{{ numbers | first }} {{ numbers | last }} {{ 'abc' | first }} {{ 'añ' | last }}"
        " [{{ [] | first }}]",
    "default":
        "{{ nope | default('x') }} {{ '' | default('x') }}|{{ '' | default('x', true) }}"
        " {{ none | d('y') }} {{ none | d('y', boolean=true) }}",
    "tojson":
        '{{ d | tojson }} {{ [1, \'é"\\n\u2028</\', true, none, 1.0, 1e20] | tojson }}'
        " {{ 'x' | tojson }} {{ {1: 2, none: 3, true: 4, 1.5: 5} | tojson }}"
        " {{ (1, 2) | tojson }}",
    "tojson indent":
        "{{ d | tojson(indent=2) }}{{ [] | tojson(indent=4) }}"
        "{{ [[], {}, [1]] | tojson(indent=0) }}{{ {'a': 1} | tojson(indent='\t') }}",
    "tojson options":
        "{{ d | tojson(sort_keys=true) }} {{ ['é🦊\x7f'] | tojson(ensure_ascii=true) }}"
        " {{ [1, {'a': 2}] | tojson(separators=(',', ':')) }}",
    "string filter": "{{ 5 | string ~ 1 }} {{ [1] | string | length }} {{ none | string }}",
    "int filter":
        "{{ '42' | int }} {{ ' -7 ' | int }} {{ '4.9' | int }} {{ 'x' | int }}"
        " {{ 'x' | int(5) }} {{ '0x1F' | int(base=16) }} {{ 3.99 | int }} {{ -3.99 | int }}"
        " {{ true | int }} {{ '1_000' | int }} {{ none | int }} {{ '101' | int(0, 2) }}",
    "float filter":
        "{{ '1.5' | float }} {{ 'x' | float }} {{ 'x' | float(2.5) }} {{ 3 | float }}"
        " {{ '1e3' | float }} {{ ' 2 ' | float }} {{ 'inf' | float }}",
    "list filter": "{{ 'añb' | list }} {{ d | list }} {{ (1, 2) | list }} {{ range(3) | list }}",
    "items":
        "{% for k, v in {'a': 1} | items %}{{ k }}{{ v }}{% endfor %}"
        "{% for k, v in nope | items %}x{% endfor %}",
    "dictsort":
        "{{ {'b': 1, 'A': 3, 'c': 2} | dictsort }} {{ {'b': 1, 'A': 3} | dictsort(true) }}"
        " {{ {'b': 1, 'A': 3} | dictsort(by='value', reverse=true) }}",
    "replace":
        "{{ 'aaa' | replace('a', 'b', 2) }} {{ 'añb' | replace('', '-') }}"
        " {{ 'abc' | replace('x', 'y') }} {{ 15 | replace('5', '6') }}",
    "map":
        "{{ messages | map(attribute='role') | list }} {{ names | map('upper') | join(',') }}"
        " {{ [[1, 2], [3]] | map('length') | list }}"
        " {{ messages | map(attribute='tool_calls', default='-') | list | length }}"
        " {{ [{'a': {'b': 1}}] | map(attribute='a.b') | list }}",
    "select":
        "{{ numbers | select('odd') | list }} {{ [0, 1, '', 'a'] | select | list }}"
        " {{ numbers | reject('gt', 2) | list }} {{ numbers | select('in', [1, 2]) | list }}",
    "selectattr":
        "{{ messages | selectattr('role', 'equalto', 'user') | list | length }}"
        " {{ messages | rejectattr('tool_calls', 'defined') | map(attribute='role') | "
        "join(',') }} {{ messages | selectattr('tool_calls') | list | length }}"
        " {{ messages | selectattr('role', 'in', ['user', 'system']) | "
        "map(attribute='role') | list }}",
    "generator is read once":
        "{% set g = numbers | map('abs') %}{{ g | list }}{{ g | list }}"
        "{% set h = numbers | select %}{{ h | first }}{{ h | first }}{{ h | list }}",
    "sort":
        "{{ numbers | sort }} {{ names | sort }} {{ names | sort(case_sensitive=true) }}"
        " {{ numbers | sort(reverse=true) }}"
        " {{ [{'a': 2, 'b': 1}, {'a': 1, 'b': 2}, {'a': 1, 'b': 1}] | sort(attribute='a,b') }}",
    "unique":
        "{{ names | unique | list }} {{ [1, 1.0, true, '1', 2] | unique | list }}"
        " {{ names | unique(case_sensitive=true) | list }}",
    "min max sum":
        "{{ numbers | min }} {{ numbers | max }} {{ numbers | sum }} {{ names | max }}"
        " {{ [{'a': 1}, {'a': 5}] | sum(attribute='a') }}"
        " {{ [{'a': 1}, {'a': 5}] | max(attribute='a') }} {{ [1.5] | sum(start=1) }}"
        " [{{ [] | min }}]",
    "indent":
        "{{ 'a\nb\n\nc' | indent }}|{{ 'a\nb' | indent(2, true) }}"
        "|{{ 'a\n\nb' | indent(width='> ', blank=true) }}|{{ '' | indent(first=true) }}",
    "escape":
        "{{ html | e }} {{ html | escape | escape }} {{ html | safe }} {{ ('<' | e) + '<' }}"
        " {{ '<' | forceescape }} {{ 5 | e }}",
    "abs and round":
        "{{ -5 | abs }} {{ -2.5 | abs }} {{ 2.5 | round }} {{ 3.5 | round }}"
        " {{ 2.675 | round(2) }} {{ 42.55 | round(1, 'floor') }}"
        " {{ 42.1 | round(method='ceil') }} {{ 5 | round }} {{ 1234.5 | round(-2) }}"
        " {{ -0.5 | round }}",
    "reverse":
        "{{ 'añb' | reverse }} {{ numbers | reverse | list }} {% for x in [1, 2] | reverse %}"
        "{{ x }}{% endfor %}",
    "batch": "{{ [1, 2, 3, 4, 5] | batch(2) | list }} {{ [1, 2, 3] | batch(2, 'x') | list }}",
    "center, format, wordcount, attr":
        "[{{ 'ab' | center(7) }}] {{ '%s-%s' | format(1, 'b') }} {{ '%(x)s' | format(x=2) }}"
        " {{ text | wordcount }} [{{ d | attr('a') }}]",
    # -- tests
    "type tests":
        "{% for x in [1, 1.5, 'a', true, none, [1], {'a': 1}, (1,)] %}{{ x is number }}"
        "{{ x is integer }}{{ x is float }}{{ x is string }}{{ x is boolean }}{{ x is none }}"
        "{{ x is mapping }}{{ x is iterable }}{{ x is sequence }}{{ x is true }}"
        "{{ x is defined }};{% endfor %}",
    "undefined tests":
        "{{ nope is undefined }}{{ nope is not defined }}{{ d.nope is defined }}"
        "{{ nope is none }}{{ nope is iterable }}{{ nope is string }}{{ nope is mapping }}"
        "{{ nope is sequence }}",
    "number tests":
        "{{ 3 is odd }}{{ 4 is even }}{{ 9 is divisibleby 3 }}{{ 9 is divisibleby(2) }}"
        "{{ -3 is odd }}",
    "comparison tests":
        "{{ 1 is eq 1 }}{{ 1 is equalto(2) }}{{ 1 is ne 2 }}{{ 3 is gt 2 }}"
        "{{ 3 is lessthan 2 }}{{ 3 is ge 3 }}{{ 2 is le 1 }}{{ 1 is in [1] }}"
        "{{ 'a' is not in 'bc' }}{{ 1 is sameas 1 }}{{ none is sameas none }}"
        "{{ true is sameas true }}",
    "case tests":
        "{{ 'ABC' is upper }}{{ 'abc' is lower }}{{ 'aBc' is lower }}{{ '123' is upper }}"
        "{{ 'x' is escaped }}{{ ('x' | e) is escaped }}",
    "callable, filter, test":
        "{{ range is callable }}{{ 1 is callable }}{{ 'upper' is filter }}{{ 'nix' is filter }}"
        "{{ 'odd' is test }}",
    "test with postfix":
        "{{ d.a is defined and d.a.c | length > 2 }} {{ 'x' is string or nope.y }}"
        " {{ 1 is not none }} {{ not 1 is none }}",
    # -- methods
    "strip":
        "[{{ text.strip() }}] [{{ 'xyaxy'.strip('xy') }}] [{{ ' a '.lstrip() }}"
        "] [{{ ' a '.rstrip() }}] [{{ 'éaé'.strip('é') }}] [{{ '\u2003a\u3000'.strip() }}]",
    "split":
        "{{ 'a,b,,c'.split(',') }} {{ '  a  b '.split() }} {{ 'a b c'.split(' ', 1) }}"
        " {{ 'a b c'.rsplit(' ', 1) }} {{ ' a b  c '.split(none, 1) }} {{ ''.split() }}"
        " {{ ''.split(',') }} {{ 'a--b'.split('--')[-1] }} {{ ' a b  c '.rsplit(none, 1) }}"
        " {{ 'aaa'.rsplit('aa', 1) }}",
    "edges":
        "{{ 'abc'.startswith('ab') }}{{ 'abc'.endswith('bc') }}"
        "{{ 'abc'.startswith(('x', 'a')) }}{{ 'abc'.startswith('b', 1) }}"
        "{{ 'abc'.endswith('b', 0, 2) }}{{ ''.startswith('') }}{{ 'a'.startswith('', 2) }}",
    "string methods":
        '{{ \'aBc\'.upper() }}{{ \'aBc\'.lower() }}{{ "they\'re bill\'s".title() }}'
        "{{ 'hELLO wORLD'.capitalize() }}{{ 'a-a-a'.replace('a', 'b', 2) }}"
        "{{ 'añb'.find('b') }}{{ 'abc'.find('x') }}{{ 'abcabc'.rfind('b') }}"
        "{{ 'abc'.index('c') }}{{ 'aaaa'.count('aa') }}{{ 'añb'.count('') }}"
        "{{ '-'.join(['a', 'b']) }}",
    "more string methods":
        "{{ 'a\nb\r\nc\u2028d'.splitlines() }} {{ 'a\nb\n'.splitlines(true) }}"
        " {{ 'prefix-x'.removeprefix('prefix-') }} {{ 'x.py'.removesuffix('.py') }}"
        " {{ 'a=b=c'.partition('=') }} {{ 'a=b=c'.rpartition('=') }} {{ 'abc'.partition('x') }}"
        " [{{ 'a'.ljust(3) }}] [{{ 'a'.rjust(3, '*') }}] {{ '-5'.zfill(4) }}",
    "string predicates":
        "{{ '12'.isdigit() }}{{ 'a1'.isdigit() }}{{ ''.isdigit() }}{{ 'añ'.isalpha() }}"
        "{{ ' \t'.isspace() }}{{ 'aB'.islower() }}{{ 'AB1'.isupper() }}{{ 'a1'.isalnum() }}",
    "dict methods":
        "{{ d.keys() | list }} {{ {'a': 1}.values() | list }} {{ {'a': 1}.items() | list }}"
        " {{ d.get('b') }} {{ d.get('nope') }} {{ d.get('nope', 5) }} {{ {'a': 1}.items() }}"
        " {{ {'a': 1}.keys() }} {{ {'a': 1}.values() }}",
    "list methods": "{{ numbers.index(2) }} {{ [1, 1, 2].count(1) }} {{ [1].copy() }}",
    # -- globals
    "range":
        "{{ range(3) | list }} {{ range(1, 4) | list }} {{ range(10, 0, -3) | list }}"
        " {{ range(0) | list }} {{ range(5)[2] }} {{ range(3) }}",
    "dict function": "{{ dict(a=1, b=2) }} {{ dict({'x': 1}, y=2) }} {{ dict([('a', 1)]) }}",
    "joiner": "{% set j = joiner('|') %}{% for x in 'abc' %}{{ j() }}{{ x }}{% endfor %}",
    "strftime":
        "{{ strftime_now('%Y-%m-%d') }} {{ strftime_now('%d %b %Y %H:%M:%S %A %j %p %%') }}"
        "{{ strftime_now('%-d.%-m. [%z] [%f]') }}",
    # -- whole templates
    "iterate parts":
        "{% for m in messages %}{{ m.role }}: {% if m.content is string %}{{ m.content }}"
        "{% else %}{% for p in m.content %}{% if p.type == 'text' %}{{ p['text'] }}{% else %}"
        "<{{ p.type }}>{% endif %}{% endfor %}{% endif %}\n{% endfor %}",
    "alternate roles":
        "{% set loop_messages = messages[1:] if messages[0]['role'] == 'system' else "
        "messages %}{% for m in loop_messages %}"
        "{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('order') }}"
        "{% endif %}{{ m.role[0] }}{% endfor %}",
    "walk backwards":
        "{% set ns = namespace(last=messages|length - 1, open=true) %}"
        "{% for m in messages[::-1] %}{% set i = (messages|length - 1) - loop.index0 %}"
        "{% if ns.open and m.role == 'assistant' %}{% set ns.open = false %}"
        "{% set ns.last = i %}{% endif %}{% endfor %}{{ ns.last }}",
    "nested json":
        "{% for c in messages[2].tool_calls %}"
        "{{ c.function.arguments | tojson(indent=4) | indent(4) }}"
        "{{ c.function | items | list }}{% endfor %}",
    "thinking":
        "{% set c = '<think>a\nb</think>\n\nanswer' %}{% if '</think>' in c %}"
        "{% set r = c.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}"
        "{% set c = c.split('</think>')[-1].lstrip('\n') %}{% endif %}{{ r }}|{{ c }}",
}

ERRORS = {
    "raise": "{{ raise_exception('no') }}",
    "undefined attribute": "{{ nope.x }}",
    "undefined item": "{{ nope['x'] }}",
    "undefined arithmetic": "{{ nope + 1 }}",
    "undefined call": "{{ nope() }}",
    "undefined compare": "{{ nope < 1 }}",
    "two deep": "{{ d.nope.x }}",
    "none plus text": "{{ none + 'a' }}",
    "text plus none": "{{ 'a' + none }}",
    "text plus number": "{{ 'a' + 1 }}",
    "number plus text": "{{ 1 + 'a' }}",
    "list plus tuple": "{{ [1] + (2,) }}",
    "unordered": "{{ 1 < 'a' }}",
    "none unordered": "{{ none < 1 }}",
    "sort mixed": "{{ [1, 'a'] | sort }}",
    "divide by zero": "{{ 1 / 0 }}",
    "modulo by zero": "{{ 1 % 0 }}",
    "floor by zero": "{{ 1 // 0.0 }}",
    "loop over none": "{% for x in none %}{% endfor %}",
    "loop over number": "{% for x in 5 %}{% endfor %}",
    "length of none": "{{ none | length }}",
    "length of number": "{{ 5 | length }}",
    "length of generator": "{{ numbers | map('abs') | length }}",
    "number in text": "{{ 1 in 'abc' }}",
    "in number": "{{ 1 in 5 }}",
    "in none": "{{ 1 in none }}",
    "call text": "{{ 'a'() }}",
    "unknown method": "{{ 'a'.nope() }}",
    "append": "{{ numbers.append(1) }}",
    "dict update": "{{ d.update({'a': 1}) }}",
    "pop": "{{ d.pop('a') }}",
    "list as key": "{{ [1] in d }}",
    "attribute of undefined": "{{ nope | attr('upper') }}",
    "filter block of number": "{% filter length %}abc{% endfilter %}",
    "unknown filter": "{{ 1 | nope }}",
    "unknown test": "{{ 1 is nope }}",
    "unknown tag": "{% nope %}",
    "lazy unknown filter": "{% if true %}{{ 1 | nope }}{% endif %}",
    "unknown keyword": "{{ 'a' | trim(foo=1) }}",
    "too many arguments": "{{ 'a' | upper(1) }}",
    "missing argument": "{{ 'a' | replace('a') }}",
    "macro surplus": "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}",
    "macro unknown keyword": "{% macro m(a) %}{% endmacro %}{{ m(b=1) }}",
    "macro doubled": "{% macro m(a) %}{% endmacro %}{{ m(1, a=2) }}",
    "macro default order": "{% macro m(a=1, b) %}{% endmacro %}",
    "caller without block": "{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}",
    "call block unused": "{% macro m() %}{% endmacro %}{% call m() %}{% endcall %}",
    "unpack too few": "{% for a, b in [(1,)] %}{% endfor %}",
    "unpack too many": "{% set a, b = 1, 2, 3 %}",
    "unpack number": "{% set a, b = 1 %}",
    "set on dict": "{% set d.x = 1 %}",
    "set constant": "{% set true = 1 %}",
    "break outside": "{% break %}",
    "loop called": "{% for x in [1] %}{{ loop([1]) }}{% endfor %}",
    "slice step zero": "{{ 'abc'[::0] }}",
    "slice by text": "{{ text['a':] }}",
    "slice of dict": "{{ d[1:] }}",
    "slice of generator": "{{ (numbers | select)[1:] }}",
    "empty separator": "{{ 'abc'.split('') }}",
    "unhashable": "{{ {[]: 1} }}",
    "json of undefined": "{{ nope | tojson }}",
    "json of function": "{{ range | tojson }}",
    "json of generator": "{{ numbers | map('abs') | tojson }}",
    "range too big": "{{ range(1000000) }}",
    "range step zero": "{{ range(1, 2, 0) }}",
    "range of text": "{{ range('a') }}",
    "last of generator": "{{ numbers | map('abs') | last }}",
    "sum of text": "{{ ['a'] | sum }}",
    "join on list of numbers": "{{ '-'.join([1]) }}",
    "index missing": "{{ 'abc'.index('x') }}",
    "format too few": "{{ '%s %s' % 1 }}",
    "format too many": "{{ 'a' % 1 }}",
    "format of text": "{{ '%d' % 'a' }}",
    "int of undefined": "{{ nope | int }}",
    "abs of text": "{{ 'a' | abs }}",
    "round of text": "{{ 'a' | round }}",
    "indent of number": "{{ 5 | indent }}",
    "items of list": "{{ [1] | items | list }}",
    "test chain": "{{ 1 is defined is defined }}",
    "empty print": "{{ }}",
    "open print": "{{ 1",
    "open tag": "{% if true",
    "open if": "{% if true %}",
    "open comment": "{# x",
    "open raw": "{% raw %}x",
    "open string": "{{ 'a }}",
    "stray else": "{% else %}",
    "stray end": "{% endif %}",
    "wrong end": "{% if true %}{% endfor %}",
    "wrong bracket": "{{ (1] }}",
    "unclosed bracket": "{{ (1 }}",
    "bad character": "{{ 1 ? 2 }}",
    "bad escape": "{{ '\\x4' }}",
    "bad target": "{% set 1 = 2 %}",
    "if without test": "{% if %}{% endif %}",
    "for without in": "{% for x %}{% endfor %}",
    "double keyword": "{{ dict(a=1, a=2) }}",
    "positional after keyword": "{{ dict(a=1, 2) }}",
    "star of number": "{{ range(*5) }}",
    "double star of list": "{{ dict(**[1]) }}",
    "two numbers": "{{ 1 2 }}",
    "leading zero": "{{ 01 }}",
}


def snippets():
    return [*PLAIN.items(), *(("error: " + name, source) for name, source in ERRORS.items())]
