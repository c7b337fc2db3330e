package console

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	logsv1 "k8s.io/component-base/logs/api/v1"
)

func TestALineHasTheFormThatControllerRuntimeGivesIt(t *testing.T) {
	var to bytes.Buffer
	logger, control := factory{}.Create(logsv1.LoggingConfiguration{Verbosity: 2}, logsv1.LoggingOptions{ErrorStream: &to})
	named := logger.WithName("controllers").WithName("NodeHealthCheck").WithValues("NodeHealthCheck", "/nhc")
	for name, row := range map[string]struct {
		log  func()
		want string
	}{
		"a line with its values":         {func() { named.Info("said", "n", 1) }, `INFO	controllers.NodeHealthCheck	said	{"NodeHealthCheck": "/nhc", "n": 1}`},
		"a line without any":             {func() { logger.Info("said") }, `INFO	said`},
		"an error":                       {func() { logger.Error(errors.New("no"), "cannot") }, `ERROR	cannot	{"error": "no"}`},
		"what --v asks for":              {func() { logger.V(2).Info("more") }, `DEBUG	more`},
		"what --v does not ask for":      {func() { logger.V(3).Info("most") }, ``},
		"a level that was turned higher": {func() { _ = control.SetVerbosityLevel(3); logger.V(3).Info("most") }, `DEBUG	most`},
	} {
		t.Run(name, func(t *testing.T) {
			to.Reset()
			_ = control.SetVerbosityLevel(2)
			row.log()
			_, got, _ := strings.Cut(strings.TrimSuffix(to.String(), "\n"), "\t") // the time
			if got != row.want {
				t.Errorf("got  %q\nwant %q", got, row.want)
			}
		})
	}
}
