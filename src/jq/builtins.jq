# The functions of jq that rules may use, beside the native ones (natives.rs) and those of the interpreter itself.

def empty: {}[] as $x | .;
def true: 0 == 0;
def false: 0 != 0;
def null: [][0];
def not: if . then false else true end;
def tostring: "\(.)";
def select(f): if f then . else empty end;
def error: error_empty as $x | .;
def error(message): (message | error_empty) as $x | .;

# Kinds
def values: select(. != null);
def nulls: select(. == null);
def booleans: select(type == "boolean");
def numbers: select(type == "number");
def strings: select(type == "string");
def arrays: select(type == "array");
def objects: select(type == "object");
def iterables: select(type | . == "array" or . == "object");
def scalars: select(type | . != "array" and . != "object");

# Generators. All are definitions, so that each output of theirs is counted as a step.
def range($from; $to; $by):
    if $by > 0 then $from | def up: if . < $to then ., (. + $by | up) else empty end; up
  elif $by < 0 then $from | def down: if . > $to then ., (. + $by | down) else empty end; down
  else empty end;
def range($from; $to): range($from; $to; 1);
def range($to): range(0; $to; 1);
def repeat(f): def again: f, again; again;
def recurse(f): def down: ., (f | down); down;
def recurse: recurse(.[]?);
def recurse(f; cond): def down: ., (f | select(cond) | down); down;
def while(cond; update): def step: if cond then ., (update | step) else empty end; step;
def until(cond; update): def step: if cond then . else update | step end; step;
def nth($n): .[$n];
def nth($n; f):
  if $n < 0 then error("nth doesn't support negative indices") else last(limit($n + 1; f)) end;
def first: .[0];
def last: .[-1];
def isempty(f): first((f | false), true);

# Predicates
def all(f; cond): isempty(f | cond and empty);
def any(f; cond): isempty(f | cond or empty) | not;
def all(cond): all(.[]; cond);
def any(cond): any(.[]; cond);
def all: all(.[]; .);
def any: any(.[]; .);
def IN(s): any(s == .; .);
def IN(source; s): any(source == s; .);
def in(xs): . as $x | xs | has($x);
def inside(xs): . as $x | xs | contains($x);

# Lists and maps
def map(f): [.[] | f];
def map_values(f): .[] |= f;
def add(f): reduce f as $x (null; . + $x);
def add: add(.[]);
def join($separator):
  def text: if . == null then "" elif type | . == "array" or . == "object" then error("cannot join an \(type)") else tostring end;
  [.[] | text] | if . == [] then "" else reduce .[1:][] as $x (.[0]; . + $separator + $x) end;
def flatten($depth):
  def level($left): .[] | if type == "array" and $left != 0 then level($left - 1) else . end;
  if $depth < 0 then error("flatten depth must not be negative") else [level($depth)] end;
def flatten: def level: .[] | if type == "array" then level else . end; [level];
def sort_by(f): map([[f], .]) | _sort_by_first | map(.[1]);
def sort: sort_by(.);
def group_by(f): map([[f], .]) | _sort_by_first | _group_by_first | map(map(.[1]));
def unique_by(f): [group_by(f)[] | .[0]];
def unique: unique_by(.);
def min_by(f): sort_by(f) | .[0];
def min: min_by(.);
def max_by(f): sort_by(f) | .[-1];
def max: max_by(.);
def transpose: [range(map(length) | max // 0) as $i | [.[][$i]]];
def combinations: if length == 0 then [] else .[0][] as $x | .[1:] | combinations as $rest | [$x] + $rest end;
def combinations($n): . as $list | [range($n) | $list] | combinations;
def to_entries: [keys[] as $key | {key: $key, value: .[$key]}];
def from_entries:
  reduce .[] as $x ({};
    . + { ($x | if type == "object" then (if has("key") then .key elif has("k") then .k elif has("name") then .name else .Name end) else error("cannot use \(.) as an entry") end
      | if type == "string" then . elif . == null then "null" else tojson end):
      ($x | if has("value") then .value elif has("v") then .v else .Value end) });
def with_entries(f): to_entries | map(f) | from_entries;
def walk(f): def down: if type | . == "array" or . == "object" then map_values(down) else . end | f; down;
def INDEX(source; key): reduce source as $x ({}; . + { ($x | key | tostring): $x });
def INDEX(key): INDEX(.[]; key);

# Paths
def getpath($path): reduce $path[] as $key (.; if . == null then null else .[$key] end);
def paths: path(..) | select(. != []);
def paths(cond): . as $value | paths | select(. as $path | $value | getpath($path) | cond);
def leaf_paths: paths(type | . != "array" and . != "object");
def setpath($path; $x): if $path == [] then $x else .[$path[0]] |= setpath($path[1:]; $x) end;
def delpaths($paths): reduce ($paths | sort | reverse | .[]) as $path (.; if $path == [] then null else getpath($path) |= empty end);
def del(f): delpaths([path(f)]);
def toarray: if type == "array" then . else [.] end;
def pick(f): . as $value | reduce path(f) as $path (null; setpath($path; $value | getpath($path)));

# Texts and numbers
def @text: tostring;
def @json: tojson;
def rindex($x): indices($x) | .[-1];
def index($x): indices($x) | .[0];
def isvalid(f): try (f | true) catch false;
def abs: if type == "number" and . < 0 then - . else . end;

# Regular expressions
def match($re; $flags): _matches($re; $flags) | .[];
def match($re): match($re; null);
def test($re; $flags): _tests($re; $flags);
def test($re): test($re; null);
def capture($re; $flags): match($re; $flags) | reduce (.captures[] | select(.name != null)) as $part ({}; . + { ($part.name): $part.string });
def capture($re): capture($re; null);
def scan($re; $flags):
  match($re; "g" + $flags) | if .captures == [] then .string else [.captures[].string] end;
def scan($re): scan($re; null);
def split($re; $flags):
  . as $text
  | reduce (_matches($re; "g" + $flags)[], { offset: length, length: 0 }) as $found
      ({ parts: [], from: 0 }; { parts: (.parts + [$text[.from:$found.offset]]), from: ($found.offset + $found.length) })
  | .parts;
def splits($re; $flags): split($re; $flags) | .[];
def splits($re): splits($re; null);
def sub($re; by; $flags):
  . as $text
  | def parts($captures): reduce ($captures[] | select(.name != null)) as $part ({}; . + { ($part.name): $part.string });
    reduce _matches($re; $flags)[] as $found
      ({ done: "", from: 0 }; { done: (.done + $text[.from:$found.offset] + (parts($found.captures) | by)), from: ($found.offset + $found.length) })
  | .done + $text[.from:];
def sub($re; by): sub($re; by; null);
def gsub($re; by; $flags): sub($re; by; "g" + $flags);
def gsub($re; by): gsub($re; by; null);
