package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestKindsOfErrors(t *testing.T) {
	for _, test := range []struct {
		source string
		kind   kind
		text   string
	}{
		{"a: {", syntax, "expected"},
		{"a: b", syntax, `reference "b" not found`},
		{"import \"strings\"", syntax, "imported and not used"},
		{"import \"tool/nothing\"\na: nothing.x", syntax, "tool/nothing"},
		{"a: 1\na: 2", conflict, "conflicting values"},
		{"a: 1 & \"x\"", conflict, "mismatched types"},
		{"a: [1] & [1, 2]", conflict, "incompatible list lengths"},
		{"#A: {b: 1}\na: #A & {c: 1}", conflict, "field not allowed"},
		{"a: >5 & 1", conflict, "invalid value"},
		{"a: 1 + \"x\"", conflict, "invalid operand"},
		{"a: \"\\([1])\"", conflict, "invalid interpolation"},
		{"a: {b: 1}\nd: close(a).x", incomplete, "undefined field"},
		{"a: {b: a}", conflict, "structural cycle"},
		{"a: or([])", incomplete, "empty"},
		{"a: [1][2]", conflict, "out of range"},
		{"import \"strings\"\na: strings.Repeat(\"a\", -1)", conflict, "error in call to"},
		{"a: 1 / 0", conflict, "division by zero"},
		{"a: 1 | 2", incomplete, "incomplete"},
		{"a: string", incomplete, "incomplete"},
		{"if a {b: 1}\na: bool", incomplete, "incomplete"},
		{"a: {b!: int}", incomplete, "required"},
		{"a: _|_", user, "explicit error"},
		{"a: error(\"too many\")", user, "too many"},
		{"x: 3\na: error(\"too many: \\(x)\")", user, "too many: 3"},
		{"a: {b: error(\"inner\")}", user, "inner"},
	} {
		_, _, failure := evaluate(test.source)
		if failure == nil || failure.kind != test.kind {
			t.Errorf("%q: %+v", test.source, failure)
			continue
		}
		if texts, _ := failure.texts(lines{}); !strings.Contains(texts[0].Text, test.text) {
			t.Errorf("%q: %+v", test.source, texts)
		}
	}
}

func TestErrorsNameLinesOfTheTemplate(t *testing.T) {
	for _, test := range []struct {
		source   string
		template lines
		lines    []int
	}{
		{"t: {\na: 1\na: 2\nb: string & 1\n}", lines{2, 3}, []int{2, 3}},
		{"t: {\nparameter: {n: int}\n}\nt: parameter: n: \"x\"", lines{2, 1}, []int{1}},
		{"a: 1\na: 2", lines{3, 1}, []int{0}},
		{"t: {\na: 1\nb: {\n}", lines{2, 3}, []int{3}},
		{"t: {\na: 1\nb: c\n}", lines{2, 2}, []int{2}},
	} {
		_, _, failure := evaluate(test.source)
		if failure == nil {
			t.Fatal(test.source)
		}
		texts, _ := failure.texts(test.template)
		var found []int
		for _, text := range texts {
			found = append(found, text.Line)
		}
		if !slices.Equal(found, test.lines) {
			t.Errorf("%q: %+v", test.source, texts)
		}
	}
}

func TestErrorsAreLimitedTogether(t *testing.T) {
	var many strings.Builder
	for number := range 20 {
		fmt.Fprintf(&many, "a%d: 1 & 2\n", number)
	}
	_, _, failure := evaluate(many.String())
	if texts, more := failure.texts(lines{}); len(texts) != maxErrors || more != 20-maxErrors {
		t.Error(texts, more)
	}
	_, _, failure = evaluate(many.String() + "b: *1 & \"x\" | 2 & \"y\"")
	texts, _ := failure.texts(lines{})
	for _, text := range texts {
		if strings.HasSuffix(text.Text, ":") {
			t.Error(text)
		}
	}
	long := strings.Repeat("x", maxErrorText)
	_, _, failure = evaluate(fmt.Sprintf("a: \"%s\" & 1\nb: 1 & 2", long))
	if texts, more := failure.texts(lines{}); len(texts) != 1 || len(texts[0].Text) != maxErrorText || more != 1 {
		t.Error(len(texts), more)
	}
}

func TestResults(t *testing.T) {
	for source, expected := range map[string]string{
		"a: 1 + 1":                  `{"a":2}`,
		"null":                      `null`,
		"a: \"<&>\"":                `{"a":"<&>"}`,
		"a: *1 | int\n_b: 1\n#C: 1": `{"a":1}`,
	} {
		var response struct{ Result json.RawMessage }
		request, _ := json.Marshal(map[string]any{"id": 1, "source": source})
		if err := json.Unmarshal(answer(request), &response); err != nil {
			t.Fatal(err)
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, response.Result); err != nil || compact.String() != expected {
			t.Errorf("%q: %s %v", source, response.Result, err)
		}
	}
}

func TestLinesAreRead(t *testing.T) {
	input := bufio.NewReader(strings.NewReader("one\n\ntwo\nrest"))
	for _, expected := range []string{"one", "", "two"} {
		if line, err := readLine(input); err != nil || string(line) != expected {
			t.Errorf("%q %v", line, err)
		}
	}
	if line, err := readLine(input); err != io.EOF {
		t.Errorf("%q %v", line, err)
	}
	long := bufio.NewReader(strings.NewReader(strings.Repeat("x", maxRequest+1)))
	if _, err := readLine(long); err == nil || err == io.EOF {
		t.Error(err)
	}
}

func TestLongErrorsAreCutBetweenCharacters(t *testing.T) {
	for start := range 4 {
		text := truncate(strings.Repeat("x", start)+strings.Repeat("é", maxErrorText), maxErrorText)
		if len(text) > maxErrorText || !utf8.ValidString(text) || !strings.HasSuffix(text, "…") {
			t.Error(len(text))
		}
	}
}
