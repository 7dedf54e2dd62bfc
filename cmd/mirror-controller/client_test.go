package main

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
)

func TestClientConfig(t *testing.T) {
	outsideOfAnyCluster(t)
	kubeconfig := "--kubeconfig=" + writeKubeconfig(t, "one", "https://one.example")
	for name, tc := range map[string]struct {
		args []string
		host string
	}{
		"current context": {[]string{kubeconfig}, "https://one.example"},
		"--context":       {[]string{kubeconfig, "--context=two"}, "https://two.example"},
	} {
		t.Run(name, func(t *testing.T) {
			opts := newOptions()
			noError(t, parse(combine(opts.bind()), tc.args))
			config, err := opts.clientConfig()
			noError(t, err)
			if config.Host != tc.host || config.QPS != -1 {
				t.Errorf("host %s, QPS %v, want %s and no throttle", config.Host, config.QPS, tc.host)
			}
			if config.UserAgent != "mirror-controller/"+version()+" instance/default" {
				t.Errorf("user agent %q", config.UserAgent)
			}
			const protobuf = "application/vnd.kubernetes.protobuf"
			if config.ContentType != protobuf || config.AcceptContentTypes != protobuf+",application/json" {
				t.Errorf("sends %q, accepts %q, want protobuf, and JSON behind it", config.ContentType, config.AcceptContentTypes)
			}
			if !config.DisableCompression {
				t.Error("has the API server compress each event")
			}
		})
	}
}

// TestC47WarningsAreFew: the API server warns of each write, by a text of five
// kilobytes. In ten minutes there are ten lines, of a kilobyte and some more.
func TestC47WarningsAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := newOptions()
		kubeconfig := "--kubeconfig=" + writeKubeconfig(t, "one", "https://one.example")
		noError(t, parse(combine(opts.bind()), []string{kubeconfig}))
		config, err := opts.clientConfig()
		noError(t, err)
		logger := ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.BufferLogs(true)))
		ctx := klog.NewContext(t.Context(), logger)
		for range 10 * 60 {
			text := strings.Repeat("warning ", 600)
			config.WarningHandlerWithContext.HandleWarningHeaderWithContext(ctx, 299, "", text)
			time.Sleep(time.Second)
		}
		n := 0
		for line := range strings.Lines(logger.GetSink().(ktesting.Underlier).GetBuffer().String()) {
			n++
			if len(line) > 1024+100 {
				t.Errorf("got a line of %d bytes: %.100s", len(line), line)
			}
		}
		if n != 10 {
			t.Errorf("got %d lines, want one a minute", n)
		}
	})
}
