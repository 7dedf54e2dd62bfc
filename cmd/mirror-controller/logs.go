package main

import (
	"io"

	"github.com/spf13/pflag"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json
)

// addLoggingFlags binds the two flags that the documentation promises. The others of component-base are alpha, or
// for its developers.
func addLoggingFlags(c *logsapi.LoggingConfiguration, fs *pflag.FlagSet) {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	logsapi.AddFlags(c, all)
	for flag, usage := range map[string]string{
		"logging-format": "Log format on stderr: text or json.",
		"v":              "Log verbosity. 0: what an operator needs to know; 2: each write; 4: each decision; 6: each request; 7 and above: also its headers. Data of ConfigMaps is never logged.",
	} {
		f := all.Lookup(flag)
		f.Usage = usage
		fs.AddFlag(f)
	}
}

// maxVerbosity is the highest verbosity; each higher one counts as this. From 8 on client-go logs the bodies of requests and
// answers, which hold the data of ConfigMaps.
const maxVerbosity = 7

func knownLogFormat(format string) bool {
	return format == logsapi.DefaultLogFormat || format == logsapi.JSONLogFormat
}

// setUpLogging makes klog, and so everything that logs in this process, write to w.
func setUpLogging(c *logsapi.LoggingConfiguration, w io.Writer) error {
	c.Verbosity = min(c.Verbosity, maxVerbosity)
	return logsapi.ValidateAndApplyWithOptions(c, &logsapi.LoggingOptions{ErrorStream: w, InfoStream: w}, nil)
}
