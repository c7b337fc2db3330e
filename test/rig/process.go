package rig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// askEvery is how often a starting program is polled. A second here would be a second of every test.
	askEvery = 20 * time.Millisecond
	// logTail is how many bytes of a program's log an error quotes.
	logTail = 2 << 10
)

// process is one program under its reaper.
type process struct {
	name   string
	log    string
	reaper io.Closer
	// ended is closed when the program and its reaper have ended. how is the error of the program; it may be read after that.
	ended chan struct{}
	how   error
}

// launch runs a program under a reaper, which kills it without a grace period, because it has nothing to save.
func (r *Rig) launch(name, path string, args []string) (*process, error) {
	log, err := os.OpenFile(filepath.Join(r.logs, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", name, err)
	}
	defer func() { _ = log.Close() }() // the program has its own file descriptor
	held, err := r.binaries.find(reaper)
	if err != nil {
		return nil, err
	}
	return launch(name, log, held, append([]string{"--", path}, args...))
}

// launch starts a reaper in its own process group, so that Ctrl-C does not reach it.
func launch(name string, log *os.File, reaper string, args []string) (*process, error) {
	cmd := exec.Command(reaper, args...)
	if log != nil {
		cmd.Stdout, cmd.Stderr = log, log
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("make the reaper of %s: %w", name, err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := &process{name: name, reaper: stdin, ended: make(chan struct{})}
	if log != nil {
		p.log = log.Name()
	}
	go func() {
		p.how = cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

func (p *process) stop() {
	if p == nil {
		return
	}
	_ = p.reaper.Close() // an error means that it is closed already
	<-p.ended
}

// await polls until ask returns no error. It stops with the end of the log if the program ends.
func (p *process) await(ctx context.Context, ask func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, askEvery, true, func(ctx context.Context) (bool, error) {
		select {
		case <-p.ended:
			return false, &endedError{p}
		default:
		}
		last = ask(ctx)
		return last == nil, nil
	})
	var ended *endedError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &ended):
		return ended
	default:
		return fmt.Errorf("wait for %s: %w, last answer: %w\n%s", p.name, err, last, p.tail())
	}
}

// endedError says that a program ended although nothing had stopped it.
type endedError struct{ *process }

func (e *endedError) Error() string {
	how := "exit status 0"
	if e.how != nil {
		how = e.how.Error()
	}
	return fmt.Sprintf("%s ended by itself with %s\n%s", e.name, how, e.tail())
}

// portTaken reports whether a program ended because another program listens on its port.
func portTaken(err error) bool {
	var ended *endedError
	return errors.As(err, &ended) && strings.Contains(ended.tail(), "address already in use")
}

func (p *process) tail() string {
	content, err := os.ReadFile(p.log)
	if err != nil {
		return ""
	}
	return string(content[max(0, len(content)-logTail):])
}

// port is a TCP port on loopback that no other program can take while nothing listens on it.
//
// A port that was once free may be taken later, even by a client that dials a stopped API server and gets its port as the random local
// port. So a socket stays bound to the port. On Linux another socket with SO_REUSEADDR, which every Go listener sets, can still listen
// there. Other systems forbid that, so there the port is released, and a start that fails because of it is repeated.
type port struct {
	number int
	socket int
}

func reservePort() (*port, error) {
	p, err := bindLoopback(0)
	if err != nil {
		return nil, fmt.Errorf("reserve a port on 127.0.0.1: %w", err)
	}
	if runtime.GOOS != "linux" {
		p.release()
	}
	return p, nil
}

// A row of ports is below the range from which the kernel takes ports of clients.
const firstInRow, lastInRow, rowAttempts = 20000, 32000, 100

func reserveRow(n int) ([]*port, error) {
	var errs error
	for range rowAttempts {
		row, err := bindRow(firstInRow+rand.IntN(lastInRow-firstInRow-n), n)
		if err == nil {
			return row, nil
		}
		errs = err
	}
	return nil, fmt.Errorf("reserve %d ports in a row on 127.0.0.1: %w", n, errs)
}

func bindRow(first, n int) ([]*port, error) {
	row := make([]*port, 0, n)
	for number := first; number < first+n; number++ {
		p, err := bindLoopback(number)
		if err != nil {
			for _, p := range row {
				p.release()
			}
			return nil, err
		}
		if runtime.GOOS != "linux" {
			p.release()
		}
		row = append(row, p)
	}
	return row, nil
}

// bindLoopback binds a socket to a port; with 0 the kernel chooses the port.
func bindLoopback(number int) (*port, error) {
	syscall.ForkLock.RLock() // a program that starts now must not inherit the socket
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, fmt.Errorf("open a socket: %w", err)
	}
	p := &port{socket: fd}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: number}); err != nil {
		p.release()
		return nil, fmt.Errorf("bind: %w", err)
	}
	// SO_REUSEADDR is set after bind, so that the kernel chooses a port that no other socket shares.
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		p.release()
		return nil, fmt.Errorf("allow sharing: %w", err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		p.release()
		return nil, fmt.Errorf("read the address: %w", err)
	}
	p.number = name.(*syscall.SockaddrInet4).Port
	return p, nil
}

func (p *port) release() {
	if p.socket >= 0 {
		_ = syscall.Close(p.socket) // nothing was written to it
		p.socket = -1
	}
}

func (p *port) String() string { return strconv.Itoa(p.number) }

func (p *port) address() string { return "127.0.0.1:" + p.String() }
