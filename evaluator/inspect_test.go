package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// respond returns the response to an inspection of a template of two lines.
func respond(source string, isChecked bool) string {
	request, _ := json.Marshal(map[string]any{
		"id": 1, "source": source, "inspect": true, "check": isChecked, "template": lines{1, 2},
	})
	return strings.TrimSpace(string(answer(request)))
}

func TestTemplatesAreInspectedWithoutTheirParameters(t *testing.T) {
	for source, expected := range map[string]string{
		"import \"strings\"\na: parameter.x": `{"id":1,"inspection":{"may_be_rewritten":false,"immutable":[],"kinds":[]}}`,
		"a: [parameter.x] + [1]":             `{"id":1,"inspection":{"may_be_rewritten":true,"immutable":[],"kinds":[]}}`,
		"a: 1\nb: ]":                         `{"id":1,"errors":[{"text":"expected operand, found ']'","line":2}],"kind":"syntax"}`,
	} {
		if response := respond(source, false); response != expected {
			t.Errorf("%q: %s", source, response)
		}
	}
}

func inspected(t *testing.T, source string) inspection {
	t.Helper()
	inspection, failure := inspect(source, false)
	if failure != nil {
		t.Fatalf("%q: %+v", source, failure)
	}
	return inspection
}

func TestMarkedParametersAreImmutable(t *testing.T) {
	for source, expected := range map[string][]string{
		"parameter: {\n\t// +usage=x\n\t// +immutable\n\timage: string\n\tport: int\n}":         {"image"},
		"parameter: {\n\t//+immutable\n\t\"b.c\"?: string\n\ta!: int // +immutable\n}":          {"a", "b.c"},
		"parameter: storage: {\n\tclass: string // +immutable\n\tsize: int\n}":                  {"storage.class"},
		"parameter: {\n\t// +immutable\n\ta: {\n\t\t// +immutable\n\t\tb: int\n\t}\n}":          {"a"},
		"parameter: {\n\t// +immutable is the mark\n\ta: int\n\t// immutable\n\tb: int\n}":      {},
		"parameter: {\n\tx: [...{\n\t\t// +immutable\n\t\ta: int\n\t}]\n}":                      {},
		"parameter: {\n\tif true {\n\t\t// +immutable\n\t\ta: int\n\t}\n}":                      {},
		"other: {\n\t// +immutable\n\ta: int\n}\nx: parameter: {\n\t// +immutable\n\tb: int\n}": {},
		"parameter: #P\n#P: {\n\t// +immutable\n\ta: int\n}":                                    {},
	} {
		if paths := inspected(t, source).Immutable; !slices.Equal(paths, expected) {
			t.Errorf("%q: %q", source, paths)
		}
	}
}

func TestKindsOfObjectsAreFoundWithoutTheirParameters(t *testing.T) {
	deployment, service := objectKind{"apps/v1", "Deployment"}, objectKind{"v1", "Service"}
	for source, expected := range map[string][]objectKind{
		`output: {apiVersion: "apps/v1", kind: "Deployment", spec: {}}`:                               {deployment},
		`output: {"kind": "Deployment", "apiVersion": "apps/v1"}`:                                     {deployment},
		`outputs: {a: {apiVersion: "v1", kind: "Service"}, "b": {apiVersion: "v1", kind: "Service"}}`: {service},
		`if parameter.x {outputs: a: {apiVersion: "v1", kind: "Service"}}`:                            {service},
		`output: {apiVersion: parameter.v, kind: "Deployment"}`:                                       {},
		`output: {apiVersion: "\(x)/v1", kind: "Deployment"}`:                                         {},
		`output: {apiVersion: "v1"}`:                                                                  {},
		`other: {apiVersion: "v1", kind: "Service"}`:                                                  {},
		`outputs: {if parameter.x {a: {apiVersion: "v1", kind: "Service"}}}`:                          {},
	} {
		if kinds := inspected(t, source).Kinds; !slices.Equal(kinds, expected) {
			t.Errorf("%q: %q", source, kinds)
		}
	}
}

func TestInspectionsHaveLimits(t *testing.T) {
	var source strings.Builder
	for index := range 1000 {
		fmt.Fprintf(&source, "parameter: {\n\t// +immutable\n\tp%d: 1\n}\n", index)
		fmt.Fprintf(&source, "outputs: {a: {apiVersion: \"v1\", kind: \"K%d\"}}\n", index)
	}
	many := inspected(t, source.String())
	if len(many.Immutable) != maxImmutable || len(many.Kinds) != maxKinds {
		t.Error(len(many.Immutable), len(many.Kinds))
	}
	name := strings.Repeat("x", maxName)
	long := inspected(t, fmt.Sprintf(
		"parameter: {\n// +immutable\n%s: 1\n// +immutable\n%s_: 1\n%s: {\n// +immutable\na: 1\n}\n}", name, name, name[1:],
	))
	if !slices.Equal(long.Immutable, []string{name}) {
		t.Error(long)
	}
	// Takes time in proportion to its length.
	const depth = 5_000
	deep := strings.Repeat("a: {\n// +immutable\nb: 1\n", depth) + strings.Repeat("}", depth)
	inspected(t, "parameter: {"+deep+"}")
}

func TestTemplatesAreCheckedWithoutTheirParameters(t *testing.T) {
	for _, source := range []string{
		"",
		"parameter: {name: string, image!: string, port?: int}\noutput: metadata: name: parameter.name",
		"output: metadata: {name: context.name, namespace: context.namespace}\nif context.x {a: 1}",
		"parameter: port?: int\noutput: port: parameter.port + 1",
		"parameter: a: int\nif parameter.a > 1 {output: b: 1}",
		"parameter: a: [...{b: string}]\noutput: c: [for v in parameter.a {v.b}]",
		"parameter: a: string\noutput: \"\\(parameter.a)\": b: \"\\(parameter.a)-x\"",
		"parameter: {a: *b | int, b: *a | int}",
		"parameter: a?: int\nif parameter.a == _|_ {x: error(\"a is required\")}",
		"parameter: a: [...int]\noutput: b: parameter.a + [1] * 2",
		"import \"vela/kube\"\nread: kube.#Read & {$params: 1}\na: 1\na: 2",
		"import \"ext/some\"\na: some.#F",
		"import \"strings\"\nparameter: a: string\noutput: b: strings.ToLower(parameter.a)",
		"import \"list\"\nparameter: a: [...int]\noutput: b: list.Sum(parameter.a)",
	} {
		if response := respond(source, true); !strings.HasPrefix(response, `{"id":1,"inspection":`) {
			t.Errorf("%q: %s", source, response)
		}
	}
	for source, expected := range map[string]string{
		"a: 1\nb: ]":                             `[{"text":"expected operand, found ']'","line":2}],"kind":"syntax"`,
		"a: context.x\nb: parameters.x":          `[{"text":"b: reference \"parameters\" not found","line":2}],"kind":"syntax"`,
		"import \"strings\"\na: 1":               `[{"text":"imported and not used: \"strings\"","line":1}],"kind":"syntax"`,
		"import \"other/x\"\na: x.y":             `[{"text":"builtin package \"other/x\" undefined","line":1}`,
		"a: 1\na: 2":                             `[{"text":"a: conflicting values 2 and 1","line":2}],"kind":"conflict"`,
		"a: error(\"x\")\nb: 1 & \"y\"":          `[{"text":"b: conflicting values 1 and \"y\" (mismatched types int and string)","line":2}],"kind":"conflict"`,
		"#A: {b: 1}\na: #A & {c: 1}":             `[{"text":"a.c: field not allowed","line":2}],"kind":"conflict"`,
		"a: {b: [1, 2]}.b + [3]\nc: 1\nc: a + 1": "",
	} {
		response := respond(source, true)
		if !strings.HasPrefix(response, `{"id":1,"errors":`) || !strings.Contains(response, expected) {
			t.Errorf("%q: %s", source, response)
		}
	}
}
