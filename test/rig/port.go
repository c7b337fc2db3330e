package rig

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"syscall"
)

// port is a TCP port on loopback that stays ours also while nothing listens on it.
//
// A port that is merely known to be free is lost sooner or later, and not only to a stranger: clients that dial an API
// server which is down for a while are given random local ports, and one day that very one. So a socket stays bound
// to it. On Linux that does not keep another socket that allows sharing, as every Go listener does, from listening
// there. Elsewhere it would, so there the port is released, and a start that fails because of it is repeated.
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

// The ports of a row are below those that the kernel gives to clients.
const firstInRow, lastInRow, rowAttempts = 20000, 32000, 100

// reserveRow reserves n ports that follow each other.
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

// bindLoopback binds a socket to a port; 0 lets the kernel choose.
func bindLoopback(number int) (*port, error) {
	syscall.ForkLock.RLock() // a program started in between must not inherit the socket
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
	// Only now, so that the kernel chose a port that no other socket shares.
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
