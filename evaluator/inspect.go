package main

import (
	"maps"
	"slices"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/literal"
	"cuelang.org/go/cue/parser"
	"cuelang.org/go/cue/token"
)

const (
	maxImmutable = 256
	maxKinds     = 64
	// Length of a path, or the name of a kind. Longer ones are left out: Kubernetes allows shorter names only.
	maxName = 512
	// The line of a comment that makes a parameter immutable.
	immutableMark = "+immutable"
)

// An inspection has the properties of a template that do not depend on its parameters.
type inspection struct {
	// The template uses + or * on what may be lists, and is rewritten if CUE refuses that.
	MayBeRewritten bool `json:"may_be_rewritten"`
	// The dotted paths of parameters that are marked as immutable, sorted. Nothing is listed below a marked parameter.
	Immutable []string `json:"immutable"`
	// The kinds of objects that are written as literals.
	Kinds []objectKind `json:"kinds"`
}

type objectKind struct {
	APIVersion string `json:"api_version"`
	Kind       string `json:"kind"`
}

// inspect parses a template, and may compile it.
func inspect(source string, isChecked bool) (inspection, *failure) {
	file, err := parser.ParseFile("", source, parser.ParseComments)
	if err != nil {
		return inspection{}, newFailure(syntax, err)
	}
	inspected := inspection{
		Immutable: immutableParameters(file),
		Kinds:     objectKinds(file),
	}
	if isChecked && !importsPackages(file) {
		if _, _, failure := compile(source, checkFile); failure != nil {
			return inspection{}, failure
		}
	}
	// Last, because it changes the file.
	if inspected.MayBeRewritten, err = rewrite(file); err != nil {
		return inspection{}, newFailure(syntax, err)
	}
	return inspected, nil
}

// labelOf returns the name of a field, or nothing if it is computed.
func labelOf(field *ast.Field) string {
	name, _, err := ast.LabelName(field.Label)
	if err != nil || len(name) > maxName {
		return ""
	}
	return name
}

func immutableParameters(file *ast.File) []string {
	paths := map[string]bool{}
	for _, declaration := range file.Decls {
		if field, ok := declaration.(*ast.Field); ok && labelOf(field) == "parameter" {
			addImmutable("", field.Value, paths)
		}
	}
	return append([]string{}, slices.Sorted(maps.Keys(paths))...)
}

// addImmutable adds the marked fields of a struct to paths.
func addImmutable(prefix string, value ast.Expr, paths map[string]bool) {
	parameters, ok := value.(*ast.StructLit)
	if !ok {
		return
	}
	for _, declaration := range parameters.Elts {
		field, ok := declaration.(*ast.Field)
		if !ok {
			continue
		}
		path := labelOf(field)
		// Paths below one that is too long are too long as well.
		if path == "" || len(prefix)+len(path) > maxName || len(paths) >= maxImmutable {
			continue
		}
		path = prefix + path
		if isImmutable(field) {
			paths[path] = true
		} else {
			addImmutable(path+".", field.Value, paths)
		}
	}
}

func isImmutable(field *ast.Field) bool {
	for _, group := range field.Comments() {
		for _, comment := range group.List {
			if strings.TrimSpace(strings.TrimPrefix(comment.Text, "//")) == immutableMark {
				return true
			}
		}
	}
	return false
}

// objectKinds returns the kinds of each field output, and of the fields of each field outputs, at any depth.
func objectKinds(file *ast.File) []objectKind {
	kinds := []objectKind{}
	add := func(value ast.Expr) {
		kind, ok := literalKind(value)
		if ok && len(kinds) < maxKinds && !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	before := func(node ast.Node) bool {
		field, ok := node.(*ast.Field)
		if !ok {
			return true
		}
		switch labelOf(field) {
		case "output":
			add(field.Value)
		case "outputs":
			for _, output := range fieldsOf(field.Value) {
				add(output.Value)
			}
		}
		return true
	}
	ast.Walk(file, before, nil)
	return kinds
}

func literalKind(value ast.Expr) (kind objectKind, ok bool) {
	for _, field := range fieldsOf(value) {
		switch labelOf(field) {
		case "apiVersion":
			kind.APIVersion = textOf(field.Value)
		case "kind":
			kind.Kind = textOf(field.Value)
		}
	}
	return kind, kind.APIVersion != "" && kind.Kind != ""
}

// textOf returns the value of a literal without references.
func textOf(value ast.Expr) string {
	text, ok := value.(*ast.BasicLit)
	if !ok || text.Kind != token.STRING || len(text.Value) > maxName {
		return ""
	}
	unquoted, err := literal.Unquote(text.Value)
	if err != nil {
		return ""
	}
	return unquoted
}

func fieldsOf(value ast.Expr) []*ast.Field {
	object, ok := value.(*ast.StructLit)
	if !ok {
		return nil
	}
	var fields []*ast.Field
	for _, declaration := range object.Elts {
		if field, ok := declaration.(*ast.Field); ok {
			fields = append(fields, field)
		}
	}
	return fields
}
