package main

import (
	"slices"
	"strings"
	"unicode/utf8"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/errors"
	"cuelang.org/go/cue/token"
)

const (
	// Length of the texts of all errors of a response.
	maxErrorText = 4 << 10
	// Errors of a response with their texts. Others are counted.
	maxErrors = 5
	// Errors whose texts are made: a text can be as long as the source.
	maxRead = 20
)

// A kind is the reason why a text is invalid.
type kind string

const (
	// The text can't be compiled.
	syntax kind = "syntax"
	// Values exclude each other.
	conflict kind = "conflict"
	// A value is missing or not concrete.
	incomplete kind = "incomplete"
	// The text reports an error, or its result exceeds a limit.
	user kind = "user"
)

// A failure is the reason why a request has no result.
type failure struct {
	kind   kind
	errors []errors.Error
	// The text uses operators on lists as older versions of CUE have them.
	isOld bool
}

// A textError is an error of a text in a response.
type textError struct {
	Text string `json:"text"`
	// The line of the template, from 1; 0 if the error is outside of it.
	Line int `json:"line,omitempty"`
}

func newFailure(kind kind, err error) *failure {
	return &failure{kind: kind, errors: errors.Errors(err)}
}

func userFailure(format string, arguments ...any) *failure {
	return newFailure(user, errors.Newf(token.NoPos, format, arguments...))
}

// failureOf returns a failure of a kind, or one that the text reports itself.
func failureOf(kind kind, err error, file *ast.File) *failure {
	reported, isOld := reportedErrors(file), false
	all := slices.Clone(errors.Errors(err))
	for index, one := range all {
		if position := one.Position(); kind != user && position.IsValid() && reported[position.Offset()] {
			kind = user
			all[0], all[index] = one, all[0]
		}
		if format, _ := one.Msg(); strings.Contains(format, " of lists is superseded by ") {
			isOld = true
		}
	}
	return &failure{kind: kind, errors: all, isOld: isOld}
}

// texts returns the first errors, and the number of the others.
func (failure *failure) texts(template lines) (texts []textError, more int) {
	known := map[string]bool{}
	left := maxErrorText
	for index, err := range failure.errors {
		text := ""
		if len(texts) < maxErrors && index < maxRead {
			text = truncate(strings.TrimPrefix(errors.String(err), "cue: marshal error: "), maxErrorText)
		}
		if text == "" || len(text) > left {
			return texts, len(failure.errors) - index
		}
		// CUE announces lists of errors by a text that ends in a colon.
		isSummary := strings.HasSuffix(text, ":") && index+1 < min(len(failure.errors), maxRead)
		if known[text] || isSummary {
			continue
		}
		known[text] = true
		left -= len(text)
		texts = append(texts, textError{Text: text, Line: template.lineOf(err)})
	}
	return texts, 0
}

// lines are those of a text that are the template.
type lines struct {
	First int `json:"first"`
	Count int `json:"count"`
}

// lineOf returns the line of the template that an error names first, or 0.
func (template lines) lineOf(err errors.Error) int {
	for _, position := range append([]token.Pos{err.Position()}, err.InputPositions()...) {
		if !position.IsValid() {
			continue
		}
		if line := position.Line() - template.First + 1; line >= 1 && line <= template.Count {
			return line
		}
	}
	return 0
}

// reportedErrors returns the offsets of calls of error and of literals of bottom.
func reportedErrors(file *ast.File) map[int]bool {
	offsets := map[int]bool{}
	add := func(position token.Pos) { offsets[position.Offset()] = true }
	before := func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.CallExpr:
			if function, ok := node.Fun.(*ast.Ident); ok && function.Name == "error" {
				add(node.Pos())
				add(node.Lparen)
			}
		case *ast.BottomLit:
			add(node.Pos())
		}
		return true
	}
	ast.Walk(file, before, nil)
	return offsets
}

// truncate cuts a text of more bytes, between characters.
func truncate(text string, bytes int) string {
	const mark = "…"
	if len(text) <= bytes {
		return text
	}
	end := bytes - len(mark)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + mark
}
