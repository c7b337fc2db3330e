// Package console is a format of the manager's log for people: time, level, name of the logger, message and values of a line, in this order, as
// controller-runtime's own logger writes them in development mode and the documentation of medik8s and OKD quotes them.
//
// A program that imports it has --logging-format=console. The default, text, is that of Kubernetes' own components.
package console

import (
	"math"

	"github.com/go-logr/logr"
	"github.com/go-logr/zapr"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	logsv1 "k8s.io/component-base/logs/api/v1"
)

// Name is the value of the flag.
const Name = "console"

// As k8s.io/component-base/logs/json/register does it for json: formats have to be known before flags are added.
func init() {
	if err := logsv1.RegisterLogFormat(Name, factory{}, logsv1.LoggingStableOptions); err != nil {
		panic(err) // two packages have registered the name
	}
}

type factory struct{}

// Create returns a logger that writes to the stream of errors, which is where Kubernetes' other formats write as well.
func (factory) Create(c logsv1.LoggingConfiguration, o logsv1.LoggingOptions) (logr.Logger, logsv1.RuntimeControl) {
	level := zap.NewAtomicLevelAt(levelOf(uint32(c.Verbosity)))
	core := zapcore.NewCore(zapcore.NewConsoleEncoder(zapcore.EncoderConfig{
		TimeKey: "time", LevelKey: "level", NameKey: "logger", MessageKey: "message",
		EncodeTime: zapcore.RFC3339TimeEncoder, EncodeLevel: levelName, EncodeDuration: zapcore.StringDurationEncoder,
	}), zapcore.Lock(zapcore.AddSync(o.ErrorStream)), level)
	set := func(verbosity uint32) error {
		level.SetLevel(levelOf(verbosity))
		return nil
	}
	return zapr.NewLoggerWithOptions(zap.New(core), zapr.ErrorKey("error")), logsv1.RuntimeControl{SetVerbosityLevel: set}
}

// levelOf is the level of zap for a verbosity of logr: the same with the sign turned, as far as zap's goes.
func levelOf(verbosity uint32) zapcore.Level {
	return zapcore.Level(-int8(min(verbosity, math.MaxInt8)))
}

// levelName is INFO or ERROR, and DEBUG for all that --v asks for besides: zap has no names for those levels.
func levelName(l zapcore.Level, to zapcore.PrimitiveArrayEncoder) {
	zapcore.CapitalLevelEncoder(max(l, zapcore.DebugLevel), to)
}
