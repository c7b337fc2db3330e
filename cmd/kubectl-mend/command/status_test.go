package command

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
)

func TestAClusterThatIsNotThereIsNotOneWhereAllIsWell(t *testing.T) {
	for line, tc := range map[string]struct {
		code int
		says string
	}{
		"status c1 -n ns":      {Done, ""},
		"status c1 -A":         {Done, ""},
		"status c2 -n ns":      {Failed, "there is no Cluster c2 in namespace ns"},
		"status c1 -n another": {Failed, "there is no Cluster c1 in namespace another"},
		"status c2 -A":         {Failed, "there is no Cluster c2 in any namespace"},
		"status c1 c2":         {Misused, "expected the name of one Cluster, NAME or cluster/NAME"},
		"status mhc/c1":        {Misused, "expected the name of one Cluster, NAME or cluster/NAME"},

		"status cluster/c1 -n ns":      {Done, ""},
		"status cluster c1 -n ns":      {Done, ""},
		"status --cluster c1 -n ns":    {Done, ""},
		"status c1 --cluster c1 -n ns": {Done, ""},
		"status c1 --cluster c2 -n ns": {Misused, "cluster/c1 and --cluster c2: expected one of them"},
		"status --cluster c2 -n ns":    {Failed, "there is no Cluster c2 in namespace ns"},
		"status cluster/c2 -n ns":      {Failed, "there is no Cluster c2 in namespace ns"},
		"status --color=sometimes":     {Misused, `--color "sometimes": expected auto, always or never`},
		"status --color=always -n ns":  {Done, ""},
	} {
		t.Run(line, func(t *testing.T) {
			o, _, errOut := recorder(t, &snapshot.Scope{})
			if code := run(t, o, strings.Fields(line)...); code != tc.code || !strings.Contains(errOut.String(), tc.says) {
				t.Errorf("exit code %d, want %d: %s", code, tc.code, errOut)
			}
		})
	}
}

// looked is a writer that tells of each page that is written to it.
type looked struct {
	bytes.Buffer
	pages int
	told  func(pages int)
}

func (l *looked) Write(page []byte) (int, error) {
	l.pages++
	defer l.told(l.pages)
	return l.Buffer.Write(page)
}

func TestPagesAreWatchedUntilTheyAreInterrupted(t *testing.T) {
	for line, says := range map[string]string{"status --every": "There are no checks", "explain machine/m -n ns --interval": "NOT CHECKED"} {
		t.Run(line, func(t *testing.T) { watched(t, line, says) })
	}
}

// watched runs a command that prints the same again and again, of which the second read fails.
func watched(t *testing.T, line, says string) {
	t.Helper()
	o, _, errOut := recorder(t, &snapshot.Scope{})
	read, reads := o.read, 0
	o.read = func(ctx context.Context, scope snapshot.Scope) (*snapshot.Snapshot, error) {
		reads++
		if reads == 2 {
			return nil, errors.New("the line is down")
		}
		return read(ctx, scope)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	out := &looked{told: func(pages int) {
		if pages == 3 {
			interrupt()
		}
	}}
	o.Out = out
	root := o.root("dev")
	root.SetArgs(append(strings.Fields(line), time.Millisecond.String(), "--watch"))
	if code := Run(ctx, root, o.IOStreams); code != Done {
		t.Fatalf("exit code %d: %s", code, errOut)
	}
	if out.pages != 3 || reads != 3 {
		t.Errorf("%d pages were drawn after %d looks", out.pages, reads)
	}
	if got := strings.Count(out.String(), "error: the line is down"); got != 1 {
		t.Errorf("what went wrong once is said %d times:\n%s", got, out)
	}
	if got := strings.Count(out.String(), says); got != 2 {
		t.Errorf("the status is there %d times:\n%s", got, out)
	}
	if strings.Contains(out.String(), clearScreen) {
		t.Error("what is no terminal is cleared")
	}
}

func TestAWatchThatCannotBeginEnds(t *testing.T) {
	o, out, errOut := recorder(t, &snapshot.Scope{})
	o.read = func(context.Context, snapshot.Scope) (*snapshot.Snapshot, error) {
		return nil, errors.New("the line is down")
	}
	if code := run(t, o, "status", "--watch"); code != Failed || out.Len() > 0 || errOut.String() != "error: the line is down\n" {
		t.Errorf("exit code %d: %s%s", code, out, errOut)
	}
	for line, says := range map[string]string{
		"status --watch --every=0s":     "--every: expected a duration above 0",
		"status --watch --from=x":       "--watch and --from exclude each other",
		"explain machine/m -w --from=x": "--watch and --from exclude each other",
		"status --sort-by=age":          `--sort-by "age": expected name, unhealthy or next`,
	} {
		errOut.Reset()
		if code := run(t, o, strings.Fields(line)...); code != Misused || !strings.Contains(errOut.String(), says) {
			t.Errorf("%s: exit code %d: %s", line, code, errOut)
		}
	}
}
