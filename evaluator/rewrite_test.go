package main

import "testing"

func TestOperatorsOnListsAreRewritten(t *testing.T) {
	for _, test := range []struct{ source, expected string }{
		{`a: [1] + [2] + [3]`, `{"a":[1,2,3]}`},
		{`a: [1, 2] * 2`, `{"a":[1,2,1,2]}`},
		{`a: 2 * [1]`, `{"a":[1,1]}`},
		{"a: [1]\nb: a + a", `{"a":[1],"b":[1,1]}`},
		{"c: {a: [1]}\nb: c.a + [2]", `{"c":{"a":[1]},"b":[1,2]}`},
		{"#P: {env: *[] | [...string]}\np: #P & {env: [\"x\"]}\nb: p.env + [\"y\"]", `{"p":{"env":["x"]},"b":["x","y"]}`},
		{"a: [for x in [1, 2] {x + 1}] + [9]", `{"a":[2,3,9]}`},
		{"import \"strings\"\nlist: [1]\na: list + [len(strings.ToUpper(\"x\"))]", `{"list":[1],"a":[1,1]}`},
		{"a: [1] + [2]\nb: 1 + 2\nc: \"x\" * 2", `{"a":[1,2],"b":3,"c":"xx"}`},
	} {
		result, _, failure := evaluate(test.source)
		if failure != nil || string(result) != test.expected {
			t.Errorf("%s: %s %+v", test.source, result, failure)
		}
	}
}

func TestWhatIsNotKnownToBeAListKeepsItsError(t *testing.T) {
	_, _, failure := evaluate("a: _\na: {b: [1]}.b\nc: a + a")
	if failure == nil || failure.kind != conflict {
		t.Errorf("%+v", failure)
	}
}
