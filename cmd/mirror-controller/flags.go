package main

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
)

// emptyMeansMore names the lists that allow more when they are empty, so that an empty value is likely a mistake. The
// others may be emptied: the overlay in deploy/example has all flags in place, also those that nobody has set.
var emptyMeansMore = map[string]bool{"namespace-prefix": true, "source-namespace": true}

// parse sets the flags of fs from args. invalid joins an error for each value that its flag cannot take. err is about
// an argument that fs does not understand: the arguments after it are not read.
func parse(fs *pflag.FlagSet, args []string) (invalid, err error) {
	var errs []error
	err = fs.ParseAll(args, func(f *pflag.Flag, value string) error {
		isList, before := f.Value.Type() == "stringSlice", f.Value.String()
		// pflag ignores an empty item: --source-namespace=$UNSET would mean every namespace.
		if isList && value == "" && emptyMeansMore[f.Name] {
			value = `""`
		}
		if err := fs.Set(f.Name, value); err != nil {
			want := fmt.Sprintf("must be of type %s (%v)", f.Value.Type(), errors.Unwrap(err))
			if f.Value.Type() == "duration" {
				want = fmt.Sprintf("must be a duration, such as 5m (%v)", errors.Unwrap(err))
			}
			errs = append(errs, wrongValue(spell(f), value, want))
			if !isList { // pflag may have set it to 0, which would be called wrong too
				_ = f.Value.Set(before)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("%w: --help lists the flags", err)
	}
	if fs.NArg() > 0 {
		errs = append(errs, fmt.Errorf("%q: unexpected argument: only flags are allowed, written --flag=value", fs.Arg(0)))
	}
	return errors.Join(errs...), nil
}

// notDefault returns the flags that have another value than their default, as they are written.
func notDefault(sections *cliflag.NamedFlagSets) (all []string) {
	combine(sections).VisitAll(func(f *pflag.Flag) {
		if f.Value.String() != f.DefValue {
			all = append(all, spell(f)+"="+f.Value.String())
		}
	})
	return all
}

// spell returns how the flag is written, without a value.
func spell(f *pflag.Flag) string {
	if f.Name == f.Shorthand {
		return "-" + f.Name
	}
	return "--" + f.Name
}

// wrongValue names a flag, its wrong value, and the values that are allowed.
func wrongValue(flag, value, want string) error {
	return fmt.Errorf("%s=%q: %s", flag, value, want)
}
