package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/pflag"
)

// mistake is one thing that is wrong with the arguments.
type mistake struct {
	flag string // what it is about, such as --instance, or nothing
	line string // what is wrong and what would be right
}

// wrongValue is the mistake of a value that the flag cannot have.
func wrongValue(flag, value, right string) mistake {
	return mistake{flag, fmt.Sprintf("%s=%q: %s", flag, value, right)}
}

// mistakeIn takes the line for a mistake in the flag that it begins with.
func mistakeIn(line string) mistake {
	end := strings.IndexAny(line, "=:")
	return mistake{line[:max(end, 0)], line}
}

// parse sets the flags of fs from args and returns all that is wrong with args. pflag stops at the first mistake,
// so it is given one argument at a time, with the next one where it asks for a value.
func parse(fs *pflag.FlagSet, args []string) []mistake {
	var wrong []mistake
	set := func(f *pflag.Flag, value string) error {
		if f.Value.Type() == "stringSlice" && value == "" && f.DefValue == "[]" {
			// pflag takes this for no items. Who writes --namespace-prefix=$PREFIX means one, and has to be told
			// that it is empty. Only of a list that has a default can it be meant that it be empty.
			value = `""`
		}
		if fs.Set(f.Name, value) != nil {
			wrong = append(wrong, wrongValue(spell(f), value, rightFor(f)))
		}
		return nil
	}
	for len(args) > 0 {
		arg, rest := args[0], args[1:]
		args = rest
		if arg == "--" {
			return append(wrong, unexpected(rest)...)
		}
		if isLongWithOneDash(fs, arg) {
			wrong = append(wrong, noSuchFlag(fs, arg))
			continue
		}
		err := fs.ParseAll([]string{arg}, set)
		var needsValue *pflag.ValueRequiredError
		if errors.As(err, &needsValue) && len(rest) > 0 {
			err = fs.ParseAll([]string{arg, rest[0]}, set)
			args = rest[1:]
		}
		var unknown *pflag.NotExistError
		switch {
		case err == nil:
			wrong = append(wrong, unexpected(fs.Args())...)
		case errors.As(err, &needsValue):
			flag := spell(needsValue.GetFlag())
			wrong = append(wrong, mistake{flag, fmt.Sprintf("%s: needs a value, as in %[1]s=VALUE", flag)})
		case errors.As(err, &unknown):
			wrong = append(wrong, noSuchFlag(fs, arg))
			if !strings.Contains(arg, "=") && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
				args = rest[1:] // its value, most likely
			}
		default:
			wrong = append(wrong, unexpected([]string{arg})...)
		}
	}
	return wrong
}

func unexpected(args []string) []mistake {
	var wrong []mistake
	for _, arg := range args {
		wrong = append(wrong, mistake{line: fmt.Sprintf("%q: unexpected argument: there are only flags, written --flag=value", arg)})
	}
	return wrong
}

// spell returns how the flag is written, without a value.
func spell(f *pflag.Flag) string {
	if f.Name == f.Shorthand {
		return "-" + f.Name
	}
	return "--" + f.Name
}

// isLongWithOneDash reports whether arg is a flag of fs with one dash instead of two, as other programs have it.
// pflag would read it as a group of shorthands.
func isLongWithOneDash(fs *pflag.FlagSet, arg string) bool {
	flag, _, _ := strings.Cut(strings.TrimPrefix(arg, "-"), "=")
	return len(flag) > 1 && arg[0] == '-' && fs.Lookup(flag) != nil
}

// rightFor returns what a value has to look like for the flag to understand it at all.
func rightFor(f *pflag.Flag) string {
	switch f.Value.Type() {
	case "bool":
		return "must be true or false"
	case "int":
		return "must be a whole number"
	case "Level": // of klog
		return "must be a whole number, 0 or more"
	case "float32":
		return "must be a number"
	case "percent":
		return "must be a percentage from 0% to 100%, such as 50%"
	case "duration":
		return "must be a duration, such as 30s or 10m"
	case "stringSlice":
		return "must be one item, or several with commas between them"
	}
	return "must be a " + f.Value.Type()
}

// notHere are flags that other controllers have, and why there is none of that name.
var notHere = map[string]string{
	"leader-elect-resource-lock": "the lock is always a Lease, leave it out",
}

// noSuchFlag is the mistake of a flag that fs does not have. It is taken for one in the flag that was meant.
func noSuchFlag(fs *pflag.FlagSet, arg string) mistake {
	flag, value, hasValue := strings.Cut(arg, "=")
	bare := strings.TrimLeft(flag, "-")
	if strings.ContainsFunc(flag, unicode.IsControl) {
		flag = strconv.Quote(flag) // what is said of it is one line
	}
	if right := notHere[bare]; right != "" {
		return mistake{line: flag + ": no such flag: " + right}
	}
	meant, least := "", len(bare)/3+1
	fs.VisitAll(func(f *pflag.Flag) {
		if d := distance(bare, f.Name); d < least {
			meant, least = spell(f), d
		}
	})
	right := "no such flag: --help lists them"
	if meant != "" {
		right = fmt.Sprintf("no such flag: did you mean %s?", meant)
	}
	if hasValue {
		return mistake{meant, wrongValue(flag, value, right).line}
	}
	return mistake{meant, flag + ": " + right}
}

// distance returns how many characters have to be inserted, removed or replaced to make b of a (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// without returns the mistakes that are about none of the flags of others.
func without(mistakes, others []mistake) []mistake {
	return slices.DeleteFunc(slices.Clone(mistakes), func(m mistake) bool {
		return m.flag != "" && slices.ContainsFunc(others, func(o mistake) bool { return o.flag == m.flag })
	})
}
