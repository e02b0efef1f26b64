package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

const withSchema = `import (
	"strings"
	"vela/kube"
)

apply: kube.#Apply & {$params: parameter}
output: metadata: name: strings.ToUpper(parameter.image)

#Port: {
	// +usage=Number of the port
	port: int
}

let phases = "before" | "after"

parameter: {
	// +usage=Image of the container, with <tag>
	// +short=i
	image: string
	replicas: *1 | int
	namespace: *context.namespace | string
	phase?: phases
	ports?: [...#Port]
	labels?: [string]: string
}
`

const expectedSchema = `{"properties":{
	"image":{"description":"Image of the container, with <tag>","title":"image","type":"string"},
	"labels":{"additionalProperties":{"type":"string"},"title":"labels","type":"object"},
	"namespace":{"title":"namespace","type":"string"},
	"phase":{"enum":["before","after"],"title":"phase","type":"string"},
	"ports":{"items":{
		"properties":{"port":{"description":"Number of the port","title":"port","type":"integer"}},
		"required":["port"],"type":"object"
	},"title":"ports","type":"array"},
	"replicas":{"default":1,"title":"replicas","type":"integer"}
},"required":["image","replicas","namespace"],"type":"object"}`

// canonical returns a JSON text in the order and form of Go.
func canonical(t *testing.T, text string) string {
	var value any
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	encoded, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(encoded)
}

func TestSchemas(t *testing.T) {
	for source, expected := range map[string]string{
		withSchema:                          expectedSchema,
		"output: missing":                   `{"type":"object"}`,
		"parameter: {}":                     `{"type":"object"}`,
		"#Base\n#Base: output: a: 1":        `{"type":"object"}`,
		"parameter: #P\n#P: a?: bool":       `{"properties":{"a":{"title":"a","type":"boolean"}},"type":"object"}`,
		"#Base\n#Base: parameter: a?: bool": `{"properties":{"a":{"title":"a","type":"boolean"}},"type":"object"}`,
	} {
		schema, failure := schemaOf(source)
		if failure != nil {
			texts, _ := failure.texts(lines{})
			t.Errorf("%q: %+v", source, texts)
			continue
		}
		if found := canonical(t, string(schema)); found != canonical(t, expected) {
			t.Errorf("%q: %s", source, found)
		}
	}
}

func TestParametersWithoutASchemaHaveErrors(t *testing.T) {
	var wide strings.Builder
	wide.WriteString("parameter: {\n")
	for number := range 600 {
		fmt.Fprintf(&wide, "\t%s%d: int\n", strings.Repeat("x", 1000), number)
	}
	wide.WriteString("}\n")
	for _, test := range []struct {
		source string
		kind   kind
		text   string
	}{
		{"parameter: ]", syntax, "expected operand"},
		{"parameter: a: missing", syntax, "reference \"missing\" not found"},
		{"import \"vela/kube\"\nparameter: a: kube.x", syntax, "vela/kube"},
		{"parameter: a: 1 & 2", conflict, "conflicting values"},
		{"parameter: a: [string, int]", incomplete, "cannot convert incomplete value"},
		{"parameter: #Defs.T\n#Defs: T: child?: [...#Defs.T]", user, "more than 32 levels"},
		{"parameter: #Tree\n#Tree: children?: [...#Tree]", user, "refer to themselves"},
		{"parameter: #Tree\n#Tree: child?: #Child\n#Child: #Tree | string", user, "refer to themselves"},
		{wide.String(), user, "more than 524288"},
	} {
		_, failure := schemaOf(test.source)
		if failure == nil || failure.kind != test.kind {
			t.Errorf("%.40q: %+v", test.source, failure)
			continue
		}
		if texts, _ := failure.texts(lines{}); !strings.Contains(texts[0].Text, test.text) {
			t.Errorf("%.40q: %+v", test.source, texts)
		}
	}
}

func TestASchemaIsAnAnswer(t *testing.T) {
	for source, expected := range map[string]string{
		"parameter: a?: int": `{"id":1,"schema":{"properties":{"a":{"title":"a","type":"integer"}},"type":"object"}}`,
		"a: 1\nparameter: ]": `{"id":1,"errors":[{"text":"expected operand, found ']'","line":2}],"kind":"syntax"}`,
	} {
		request, _ := json.Marshal(map[string]any{"id": 1, "source": source, "schema": true, "template": lines{1, 2}})
		if response := strings.TrimSpace(string(answer(request))); response != expected {
			t.Errorf("%q: %s", source, response)
		}
	}
}
