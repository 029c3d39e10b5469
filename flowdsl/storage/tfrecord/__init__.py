"""TFRecord files and ``tf.train.Example`` messages, without TensorFlow."""
