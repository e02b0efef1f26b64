package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/build"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/parser"
)

const (
	// Changes when an evaluator of an older version could not answer.
	version   = 4
	maxResult = 4 << 20
)

type request struct {
	ID     uint64  `json:"id"`
	Source *string `json:"source"`
	// The lines of the source that are the template.
	Template lines `json:"template"`
	// Parses the source instead of evaluating it.
	Inspect bool `json:"inspect"`
	// With inspect: compiles the source too, without parameters.
	Check   bool `json:"check"`
	Version bool `json:"version"`
	// Makes the schema of the field parameter instead of evaluating the source.
	Schema bool `json:"schema"`
}

type response struct {
	ID         uint64          `json:"id"`
	Result     json.RawMessage `json:"result,omitempty"`
	Errors     []textError     `json:"errors,omitempty"`
	More       int             `json:"more,omitempty"`
	Kind       kind            `json:"kind,omitempty"`
	Inspection *inspection     `json:"inspection,omitempty"`
	Version    int             `json:"version,omitempty"`
	// The text is for an older version of CUE, and was rewritten.
	Rewritten bool `json:"rewritten,omitempty"`
	// OpenAPI 3.0.
	Schema json.RawMessage `json:"schema,omitempty"`
}

// answer returns the response to a request as a line.
func answer(line []byte) (encoded []byte) {
	var request request
	// CUE makes the texts of errors from its values only here.
	defer func() {
		if panicked := recover(); panicked != nil {
			encoded = encode(request.failed(userFailure("CUE failed: %v", panicked)))
		}
	}()
	if err := decode(line, &request); err != nil {
		return encode(request.failed(userFailure("invalid request: %v", err)))
	}
	switch {
	case request.Version:
		return encode(response{ID: request.ID, Version: version})
	case request.Source == nil:
		return encode(request.failed(userFailure("invalid request: no source")))
	case request.Schema:
		schema, failure := schemaOf(*request.Source)
		if failure != nil {
			return encode(request.failed(failure))
		}
		return encode(response{ID: request.ID, Schema: schema})
	case request.Inspect:
		inspection, failure := inspect(*request.Source, request.Check)
		if failure != nil {
			return encode(request.failed(failure))
		}
		return encode(response{ID: request.ID, Inspection: &inspection})
	}
	result, rewritten, failure := evaluate(*request.Source)
	if failure != nil {
		return encode(request.failed(failure))
	}
	return encode(response{ID: request.ID, Result: result, Rewritten: rewritten})
}

func decode(line []byte, request *request) error {
	// The decoder would replace invalid bytes.
	if !utf8.Valid(line) {
		return fmt.Errorf("it is not UTF-8")
	}
	return json.Unmarshal(line, request)
}

func (request *request) failed(failure *failure) response {
	texts, more := failure.texts(request.Template)
	return response{ID: request.ID, Kind: failure.kind, Errors: texts, More: more}
}

func encode(response response) []byte {
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false)
	// Numbers, texts and JSON of CUE, so that encoding can't fail.
	if err := encoder.Encode(response); err != nil {
		panic(err)
	}
	return line.Bytes()
}

// evaluate compiles a text, checks that it is valid, and exports it. A text for an older CUE is rewritten.
func evaluate(source string) (result json.RawMessage, rewritten bool, failure *failure) {
	return compile(source, evaluateFile)
}

// compile parses a text and does the next step; if that fails because the text is for an older CUE, once more with the
// rewritten text.
func compile[T any](source string, next func(*ast.File) (T, *failure)) (result T, rewritten bool, failure *failure) {
	file, err := parser.ParseFile("", source)
	if err != nil {
		return result, false, newFailure(syntax, err)
	}
	result, failure = next(file)
	if failure == nil || !failure.isOld {
		return result, false, failure
	}
	// The first build has resolved the references of its file.
	if file, err = parser.ParseFile("", source); err != nil {
		return result, false, newFailure(syntax, err)
	}
	if changed, err := rewrite(file); err != nil || !changed {
		return result, false, failure
	}
	result, failure = next(file)
	return result, true, failure
}

func evaluateFile(file *ast.File) (json.RawMessage, *failure) {
	value, failure := buildFile(file)
	if failure != nil {
		return nil, failure
	}
	if err := value.Validate(); err != nil {
		return nil, failureOf(conflict, err, file)
	}
	// Only values that are missing or not concrete are valid and can't be exported.
	result, err := value.MarshalJSON()
	if err != nil {
		return nil, failureOf(incomplete, err, file)
	}
	if len(result) > maxResult {
		return nil, userFailure("the result has %d bytes, more than %d", len(result), maxResult)
	}
	return result, nil
}

// buildFile uses a context of its own: one context for all would grow, and could carry values from one text to another.
func buildFile(file *ast.File) (cue.Value, *failure) {
	instance := build.NewContext().NewInstance("", nil)
	if err := instance.AddSyntax(file); err != nil {
		return cue.Value{}, newFailure(syntax, err)
	}
	value := cuecontext.New().BuildInstance(instance)
	if instance.Err != nil {
		return cue.Value{}, newFailure(syntax, instance.Err)
	}
	return value, nil
}
